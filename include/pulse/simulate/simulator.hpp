#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulation.hpp>

namespace pulse {

/// The world in which a step is simulated; the default moves bytes in no time.
struct simulation_options {
    /// Between every two ranks, unless `links` is given.
    link between_ranks{};
    /// Row-major P x P, [from * P + to]; empty means `between_ranks` everywhere.
    std::vector<link> links{};
    /// Between the data-parallel replicas of a rank.
    link between_replicas{};
    /// Time of the optimizer step of each rank.
    double optimizer_us{};
};

/// Time of one instruction that computes: the sums of its layers' times; an unsplit backward is B + W; a recompute is F.
[[nodiscard]] constexpr double duration_us(const step_model& model, const instruction& what) noexcept {
    const auto over = [&](stage_id stage, auto of_layer) {
        double sum = 0;
        for (int l = model.first_layer(index_of(stage)); l <= model.last_layer(index_of(stage)); ++l) {
            sum += of_layer(model.layer(l));
        }
        return sum;
    };
    const auto forward = [](const layer_cost& c) { return c.forward_us; };
    if (const auto* f = std::get_if<op::forward>(&what)) { return over(f->stage, forward); }
    if (const auto* r = std::get_if<op::recompute>(&what)) { return over(r->stage, forward); }
    if (const auto* b = std::get_if<op::backward_input>(&what)) {
        const bool with_weight = b->with_weight;
        return over(b->stage, [with_weight](const layer_cost& c) {
            return c.backward_input_us + (with_weight ? c.backward_weight_us : 0.0);
        });
    }
    if (const auto* w = std::get_if<op::backward_weight>(&what)) {
        return over(w->stage, [](const layer_cost& c) { return c.backward_weight_us; });
    }
    return 0;
}

namespace detail {

/// Every rank has a clock of its own and runs ahead until it waits for a message that the other side has not posted.
///
/// No queue of events is needed: what a rank does next depends on its program alone, and the time of a message only on
/// when its two sides post it and on the message before it on the same link. So the order in which ranks are advanced
/// does not matter.
class step_simulator {
public:
    constexpr step_simulator(const plan& planned, const step_model& model, const std::vector<program>& programs,
                             const simulation_options& options)
        : model_(&model), programs_(&programs), options_(&options), replicas_(planned.data_degree),
          ranks_(programs.size()), wires_(programs.size() * programs.size()) {
        made_.ranks.resize(programs.size());
        for (std::size_t r = 0; r != programs.size(); ++r) {
            if (programs[r].device != static_cast<int>(r)) { throw input_error("pulse: simulate: programs must be in rank order"); }
        }
        if (!options.links.empty() && options.links.size() != wires_.size()) {
            throw input_error("pulse: simulate: links must have one entry for each pair of ranks");
        }
    }

    [[nodiscard]] constexpr simulation run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t r = 0; r != ranks_.size(); ++r) {
                while (advance(r)) { moved = true; }
            }
        }
        double busy = 0;
        for (std::size_t r = 0; r != ranks_.size(); ++r) {
            if (!ended(r)) { refuse_stuck(r); }
            made_.step_us = std::max(made_.step_us, ranks_[r].clock_us);
            made_.live_peak_bytes.push_back(ranks_[r].peak_bytes);
            busy += ranks_[r].busy_us;
        }
        for (const wire& w : wires_) {
            for (const simulated_transfer& t : w.transfers) {
                made_.boundary_bytes += t.boundary_bytes;
                made_.skip_bytes += t.skip_bytes;
                made_.transfers.push_back(t);
            }
        }
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
        double reduced_us{};
        std::vector<posted> open{};
        std::int64_t live_bytes{};
        std::int64_t peak_bytes{};
    };
    /// One direction between two ranks: what each side has posted, in order, and what both have.
    struct wire {
        std::vector<message_id> sent{};
        std::vector<double> sent_us{};
        std::vector<message_id> received{};
        std::vector<double> received_us{};
        std::vector<simulated_transfer> transfers{};
        double free_us{};
    };

    const step_model* model_;
    const std::vector<program>* programs_;
    const simulation_options* options_;
    int replicas_;
    std::vector<rank_state> ranks_;
    std::vector<wire> wires_;
    simulation made_{};

    [[nodiscard]] constexpr const program& of(std::size_t r) const noexcept { return (*programs_)[r]; }
    [[nodiscard]] constexpr bool ended(std::size_t r) const noexcept { return ranks_[r].at == of(r).instructions.size(); }

    [[noreturn]] void refuse_stuck(std::size_t r) const {
        throw input_error("pulse: simulate: rank " + std::to_string(r) + ", instruction " + std::to_string(ranks_[r].at) + " (" +
                          to_text(of(r).instructions[ranks_[r].at]) + ") waits for a message that never comes");
    }
    [[noreturn]] static void refuse_pair(const message_id& sent, const message_id& received) {
        throw input_error("pulse: simulate: " + to_text(sent) + " meets " + to_text(received));
    }
    [[noreturn]] static void refuse_peer(std::size_t r) {
        throw input_error("pulse: simulate: rank " + std::to_string(r) + " names a peer that does not exist");
    }

    /// A receive is waited for by whatever touches its buffer, a send by what changes or ends it.
    [[nodiscard]] static constexpr bool concerns(const posted& p, const buffer_id& buffer, bool changes) noexcept {
        return p.buffer == buffer && (!p.sends || changes);
    }
    /// Whether both sides have posted every message that a touch of the buffer waits for.
    [[nodiscard]] constexpr bool can_touch(const rank_state& rank, const buffer_id& buffer, bool changes) const {
        return std::all_of(rank.open.begin(), rank.open.end(), [&](const posted& p) {
            return !concerns(p, buffer, changes) || p.number < wires_[p.wire].transfers.size();
        });
    }
    constexpr void wait_for(rank_state& rank, const buffer_id& buffer, bool changes) {
        for (std::size_t i = 0; i < rank.open.size();) {
            const posted p = rank.open[i];
            if (!concerns(p, buffer, changes)) {
                ++i;
                continue;
            }
            const simulated_transfer& t = wires_[p.wire].transfers[p.number];
            rank.clock_us = std::max(rank.clock_us, p.sends ? t.left_us : t.arrived_us);
            rank.open.erase(rank.open.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }
    /// Does the rank's next instruction, unless it waits or the program has ended.
    constexpr bool advance(std::size_t r) {
        if (ended(r)) { return false; }
        rank_state& rank = ranks_[r];
        const instruction& what = of(r).instructions[rank.at];
        const double before_us = rank.clock_us;
        const std::vector<buffer_access> accesses = model_->accesses(static_cast<int>(r), what);
        if (const auto* last = std::get_if<op::release>(&what)) {
            if (!can_touch(rank, last->buffer, true)) { return false; }
            wait_for(rank, last->buffer, true);
            rank.live_bytes -= model_->bytes(last->buffer);
        }
        for (const buffer_access& a : accesses) {
            if (!can_touch(rank, a.buffer, a.mode != access::read)) { return false; }
        }
        for (const buffer_access& a : accesses) {
            wait_for(rank, a.buffer, a.mode != access::read);
            if (a.mode == access::write) { rank.live_bytes += model_->bytes(a.buffer); }
        }
        rank.peak_bytes = std::max(rank.peak_bytes, rank.live_bytes);
        if (is_compute(what)) {
            const double start_us = rank.clock_us;
            rank.clock_us += duration_us(*model_, what);
            rank.busy_us += rank.clock_us - start_us;
            made_.ranks[r].push_back({static_cast<int>(rank.at), start_us, rank.clock_us, start_us - before_us});
        } else if (const auto* s = std::get_if<op::send>(&what)) {
            post(r, index_of(s->peer), s->message, true);
        } else if (const auto* v = std::get_if<op::recv>(&what)) {
            post(r, index_of(v->peer), v->message, false);
        } else if (const auto* a = std::get_if<op::all_reduce>(&what)) {
            rank.reduced_us = std::max(rank.reduced_us, rank.clock_us) + reduce_us(index_of(a->stage));
        } else if (std::holds_alternative<op::optimizer_step>(what)) {
            rank.clock_us = std::max(rank.clock_us, rank.reduced_us) + options_->optimizer_us;
            rank.busy_us += options_->optimizer_us;
        }
        ++rank.at;
        return true;
    }
    constexpr void post(std::size_t r, int peer, const message_id& message, bool sends) {
        if (peer < 0 || static_cast<std::size_t>(peer) >= ranks_.size()) { refuse_peer(r); }
        const auto other = static_cast<std::size_t>(peer);
        const std::size_t at = sends ? r * ranks_.size() + other : other * ranks_.size() + r;
        wire& w = wires_[at];
        const std::size_t number = sends ? w.sent.size() : w.received.size();
        (sends ? w.sent : w.received).push_back(message);
        (sends ? w.sent_us : w.received_us).push_back(ranks_[r].clock_us);
        for (const buffer_id& part : model_->parts(message, static_cast<int>(r))) {
            ranks_[r].open.push_back({part, at, number, sends});
        }
        const std::size_t both = w.transfers.size();
        if (both < w.sent.size() && both < w.received.size()) { start(at); }
    }
    constexpr void start(std::size_t at) {
        wire& w = wires_[at];
        const std::size_t number = w.transfers.size();
        if (w.sent[number] != w.received[number]) { refuse_pair(w.sent[number], w.received[number]); }
        simulated_transfer t{};
        t.message = w.sent[number];
        t.from = static_cast<int>(at / ranks_.size());
        t.to = static_cast<int>(at % ranks_.size());
        const std::vector<buffer_id> parts = model_->parts(t.message, t.to);
        for (std::size_t i = 0; i != parts.size(); ++i) {
            (model_->is_skip_part(t.message, i) ? t.skip_bytes : t.boundary_bytes) += model_->bytes(parts[i]);
        }
        const link& line = options_->links.empty() ? options_->between_ranks : options_->links[at];
        t.start_us = std::max({w.sent_us[number], w.received_us[number], w.free_us});
        // The next message may follow while this one is still on its way.
        t.arrived_us = t.start_us + line.transfer_us(t.boundary_bytes + t.skip_bytes);
        t.left_us = std::max(t.start_us, t.arrived_us - line.latency_us);
        w.free_us = t.left_us;
        w.transfers.push_back(t);
    }
    /// A ring over the replicas: 2 (D - 1) messages, each 1/D of the stage's gradients.
    [[nodiscard]] constexpr double reduce_us(int stage) const noexcept {
        std::int64_t bytes = 0;
        for (int l = model_->first_layer(stage); l <= model_->last_layer(stage); ++l) { bytes += model_->layer(l).parameter_bytes; }
        return 2.0 * (replicas_ - 1) * options_->between_replicas.transfer_us((bytes + replicas_ - 1) / replicas_);
    }
};

} // namespace detail

/// Executes the programs on a clock, as the executor does: sends and receives are started in program order and do not
/// hold up their rank; an instruction waits for the receives of what it touches, and a release (or what changes a
/// buffer) for the sends of it. A message starts when both sides have posted it and the one before it on the same
/// directed pair has left; it takes bytes / bandwidth to leave and the latency more to arrive. The gradients of a stage
/// are reduced over replicas while the rank goes on; the optimizer step waits for them.
///
/// Times in microseconds. Throws input_error when the programs wait for messages that never come or disagree about them.
[[nodiscard]] constexpr simulation simulate(const plan& planned, const step_model& model, const std::vector<program>& programs,
                                            const simulation_options& options = {}) {
    return detail::step_simulator{planned, model, programs, options}.run();
}

} // namespace pulse
