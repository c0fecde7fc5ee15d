#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/footprint.hpp>
#include <pulse/plan/gradient_places.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/duration.hpp>
#include <pulse/simulate/memory_timeline.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/simulate/transfer_queue.hpp>

namespace pulse {

namespace detail {

/// Every rank has its own clock and runs ahead until it waits for a message that has not started.
///
/// When no rank can run, the message that can start first is started. Every later posting depends on a message that has
/// not started yet and is ready no earlier than that one, so it could not have come first on its links.
class step_simulator {
public:
    constexpr step_simulator(const plan& planned, const step_model& model, const std::vector<program>& programs,
                             const simulation_options& options) :
        model_(&model),
        programs_(&programs), options_(&options), replicas_(planned.data_degree),
        queue_(model, programs.size(), planned.data_degree, options), ranks_(programs.size()),
        begun_(static_cast<std::size_t>(model.stage_count()), 0) {
        for (std::size_t r = 0; r != programs.size(); ++r) {
            if (programs[r].device != static_cast<int>(r)) {
                throw input_error("pulse: simulate: programs must be in rank order");
            }
        }
        const std::vector<double>& speed = options.device_speed;
        if (!speed.empty() && speed.size() != programs.size()) {
            throw input_error("pulse: simulate: device_speed must have one entry for each rank");
        }
        if (!std::all_of(speed.begin(), speed.end(), [](double s) { return s > 0; })) {
            throw input_error("pulse: simulate: device_speed must be above 0");
        }
        if (!options.device_optimizer_us.empty() && options.device_optimizer_us.size() != programs.size()) {
            throw input_error("pulse: simulate: device_optimizer_us must have one entry for each rank");
        }
        check_parameter_memory(options.kept);
        made_.ranks.resize(programs.size());
        made_.gradient_bytes.resize(programs.size(), 0);
        for (std::size_t r = 0; r != programs.size(); ++r) {
            made_.memory.push_back(fixed_memory(static_cast<int>(r)));
        }
    }

    [[nodiscard]] constexpr simulation run() {
        for (std::size_t r = 0; r != ranks_.size(); ++r) { run_ahead(r); }
        while (!queue_.idle()) {
            const auto ranks = queue_.start_next();
            run_ahead(ranks.first);
            run_ahead(ranks.second);
        }
        double busy = 0;
        for (std::size_t r = 0; r != ranks_.size(); ++r) {
            if (!ended(r)) { refuse_stuck(r); }
            made_.step_us = std::max({made_.step_us, ranks_[r].clock_us, queue_.reduced_us(r)});
            busy += ranks_[r].busy_us;
        }
        queue_.report(made_);
        made_.replica_bytes = replica_traffic_bytes(*model_, replicas_, options_->kept);
        const double all = static_cast<double>(ranks_.size()) * made_.step_us;
        made_.bubble_ratio = all > 0 ? 1.0 - busy / all : 0.0;
        return made_;
    }

private:
    /// A message that this rank has posted and not yet waited for.
    struct posted {
        buffer_id buffer{};
        std::size_t wire{};
        std::size_t number{}; ///< position among the messages of the wire
        bool sends{};
    };
    struct rank_state {
        std::size_t at{};
        double clock_us{};
        double busy_us{};
        std::vector<posted> open{};
        std::int64_t activation_bytes{};
        std::int64_t skip_bytes{};
    };

    const step_model* model_;
    const std::vector<program>* programs_;
    const simulation_options* options_;
    int replicas_;
    transfer_queue queue_;
    std::vector<rank_state> ranks_;
    std::vector<char> begun_; ///< stages that have begun a backward pass; not bool, for clang 14
    simulation made_{};

    [[nodiscard]] constexpr const program& of(std::size_t r) const noexcept { return (*programs_)[r]; }
    [[nodiscard]] constexpr bool ended(std::size_t r) const noexcept {
        return ranks_[r].at == of(r).instructions.size();
    }

    [[noreturn]] void refuse_stuck(std::size_t r) const {
        throw input_error("pulse: simulate: rank " + std::to_string(r) + ", instruction " +
                          std::to_string(ranks_[r].at) + " (" + to_text(of(r).instructions[ranks_[r].at]) +
                          ") waits for a message that never comes");
    }
    [[noreturn]] static void refuse_peer(std::size_t r) {
        throw input_error("pulse: simulate: rank " + std::to_string(r) + " names a peer that does not exist");
    }

    [[nodiscard]] constexpr memory_timeline fixed_memory(int rank) const {
        memory_timeline made{};
        made.weight_bytes = parameter_bytes_on(*model_, rank);
        const parameter_memory& kept = options_->kept;
        made.gradient_bytes = gradient_bytes_on(*model_, rank, kept) +
                              further_gradient_bytes(*model_, kept, {&of(static_cast<std::size_t>(rank))});
        // The last replica has the most.
        made.optimizer_bytes = state_bytes_on(*model_, rank, replicas_, replicas_ - 1, kept);
        made.workspace_bytes = workspace_bytes_of(*model_, rank) + scratch_bytes_on(*model_, rank, kept);
        made.replica_bytes = replica_bytes_on(*model_, rank, replicas_, kept);
        return made;
    }
    /// Whether the buffer is a skip tensor between two stages, as made or as received, or its gradient.
    [[nodiscard]] constexpr bool is_skip(const buffer_id& buffer) const {
        if (buffer.kind == buffer_kind::skip || buffer.kind == buffer_kind::skip_gradient) { return true; }
        if (buffer.kind != buffer_kind::activation) { return false; }
        const std::vector<int>& edges = model_->edges_from(model_->stage_of_layer(buffer.index));
        return std::any_of(edges.begin(), edges.end(),
                           [&](int e) { return model_->edge(e).from == buffer.index && !model_->is_inside(e); });
    }
    constexpr void change_memory(rank_state& rank, const buffer_id& buffer, bool begins) const {
        const std::int64_t bytes = model_->bytes(buffer);
        (is_skip(buffer) ? rank.skip_bytes : rank.activation_bytes) += begins ? bytes : -bytes;
    }

    /// Every access to a buffer waits for its receive; a write or a release also waits for its sends.
    [[nodiscard]] static constexpr bool concerns(const posted& p, const buffer_id& buffer, bool changes) noexcept {
        return p.buffer == buffer && (!p.sends || changes);
    }
    /// Whether every message that an access to the buffer waits for has started.
    [[nodiscard]] constexpr bool can_touch(const rank_state& rank, const buffer_id& buffer, bool changes) const {
        return std::all_of(rank.open.begin(), rank.open.end(), [&](const posted& p) {
            return !concerns(p, buffer, changes) || queue_.started(p.wire, p.number);
        });
    }
    constexpr void wait_for(rank_state& rank, const buffer_id& buffer, bool changes) {
        for (std::size_t i = 0; i < rank.open.size();) {
            const posted p = rank.open[i];
            if (!concerns(p, buffer, changes)) {
                ++i;
                continue;
            }
            const simulated_transfer& t = queue_.transfer(p.wire, p.number);
            rank.clock_us = std::max(rank.clock_us, p.sends ? t.left_us : t.arrived_us);
            rank.open.erase(rank.open.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    constexpr void run_ahead(std::size_t r) {
        while (!ended(r) && advance(r)) {}
    }
    /// Executes the rank's next instruction unless it must wait; returns whether it did.
    constexpr bool advance(std::size_t r) {
        rank_state& rank = ranks_[r];
        const instruction& what = of(r).instructions[rank.at];
        if (waits_for_sums(what) && !queue_.reduced(r)) { return false; }
        const std::vector<buffer_access> accesses = model_->accesses(static_cast<int>(r), what);
        const auto* last = std::get_if<op::release>(&what);
        if (last != nullptr && !can_touch(rank, last->buffer, true)) { return false; }
        for (const buffer_access& a : accesses) {
            if (!can_touch(rank, a.buffer, a.mode != access::read)) { return false; }
        }
        bool changed = last != nullptr;
        if (last != nullptr) {
            wait_for(rank, last->buffer, true);
            change_memory(rank, last->buffer, false);
        }
        for (const buffer_access& a : accesses) {
            wait_for(rank, a.buffer, a.mode != access::read);
            if (a.mode != access::write) { continue; }
            change_memory(rank, a.buffer, true);
            changed = true;
        }
        if (changed) { made_.memory[r].samples.push_back({rank.clock_us, rank.activation_bytes, rank.skip_bytes}); }
        perform(r, what);
        ++rank.at;
        return true;
    }
    /// Whether the instruction waits for the reductions that the rank has started: the optimizer step does and, with
    /// gradient release, the first backward pass of a stage, whose gradients reuse the memory of the released ones.
    [[nodiscard]] constexpr bool waits_for_sums(const instruction& what) const {
        const auto* b = std::get_if<op::backward_input>(&what);
        return std::holds_alternative<op::optimizer_step>(what) ||
               (b != nullptr && replicas_ > 1 && model_->gradient_release() &&
                begun_[static_cast<std::size_t>(index_of(b->stage))] == 0);
    }
    constexpr void perform(std::size_t r, const instruction& what) {
        rank_state& rank = ranks_[r];
        if (waits_for_sums(what)) { rank.clock_us = std::max(rank.clock_us, queue_.reduced_us(r)); }
        if (is_compute(what)) {
            if (const auto* b = std::get_if<op::backward_input>(&what)) {
                begun_[static_cast<std::size_t>(index_of(b->stage))] = 1;
            }
            const double start_us = rank.clock_us;
            const double speed = options_->device_speed.empty() ? 1.0 : options_->device_speed[r];
            rank.clock_us += duration_us(*model_, static_cast<int>(r), what) / speed;
            rank.busy_us += rank.clock_us - start_us;
            made_.ranks[r].push_back({static_cast<int>(rank.at), start_us, rank.clock_us});
        } else if (const auto* s = std::get_if<op::send>(&what)) {
            post(r, index_of(s->peer), s->message, true);
        } else if (const auto* v = std::get_if<op::recv>(&what)) {
            post(r, index_of(v->peer), v->message, false);
        } else if (const auto* a = std::get_if<op::all_reduce>(&what)) {
            const int stage = index_of(a->stage);
            const std::int64_t bytes = gradient_bytes_of(parameter_bytes_of(*model_, stage), options_->kept);
            queue_.post_exchange(r, share_bytes_of(bytes, replicas_), true, !options_->kept.sharded, rank.clock_us);
            made_.gradient_bytes[r] += reduce_bytes(bytes, replicas_, options_->kept);
        } else if (std::holds_alternative<op::optimizer_step>(what)) {
            rank.clock_us += options_->optimizer_us_of(r);
            rank.busy_us += options_->optimizer_us_of(r);
            const std::int64_t share =
                weight_share_bytes(parameter_bytes_on(*model_, static_cast<int>(r)), replicas_, options_->kept);
            queue_.post_exchange(r, share, false, true, rank.clock_us);
            made_.gradient_bytes[r] += (replicas_ - 1) * share;
        }
    }
    constexpr void post(std::size_t r, int peer, const message_id& message, bool sends) {
        if (peer < 0 || static_cast<std::size_t>(peer) >= ranks_.size()) { refuse_peer(r); }
        const auto other = static_cast<std::size_t>(peer);
        const std::size_t at = sends ? queue_.wire_of(r, other) : queue_.wire_of(other, r);
        const std::size_t number = queue_.post(at, message, sends, ranks_[r].clock_us);
        for (const buffer_id& part : model_->parts(message, static_cast<int>(r))) {
            ranks_[r].open.push_back({part, at, number, sends});
        }
    }
};

} // namespace detail

PULSE_CONSTEXPR simulation simulate(const plan& planned, const step_model& model, const std::vector<program>& programs,
                                    const simulation_options& options) {
    return detail::step_simulator{planned, model, programs, options}.run();
}

} // namespace pulse
