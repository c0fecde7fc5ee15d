#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/checkpoint/merged.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/sharded.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/runtime/value_watch.hpp>
#include <pulse/train/initial_values.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/not_finite.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include "artifacts.hpp"
#include "loss_scaling.hpp"
#include "progress.hpp"
#include "rank_results.hpp"
#include "run_inputs.hpp"
#include "setup.hpp"
#include "timeline.hpp"

namespace pulse_train {

/// One rank's part of a training run on a side (see host_side).
template <class Model, class Side>
class training_rank {
public:
    using math = typename Side::math;

    training_rank(const Side& side, const run_inputs& in, const pulse::any_transport& among) :
        in_{in}, transport_{among}, math_{side.make_math(among)}, executor_{math_, among, in.plan, in.costs,
                                                                            in.execution()},
        optimizer_{in, Model::layer_count, executor_.parameters(), among}, task_{in, among, [this] { optimize(); }},
        checkpoints_{checkpoints_of(in)} {
        optimizer_.start(pulse::train::initial_values<Model>(executor_.parameters(), in.args.seed),
                         executor_.parameters());
        if (!in.args.resume.empty()) { resume(); }
    }

    /// What the rank leaves.
    [[nodiscard]] rank_results run() {
        const std::int64_t first = state_.step;
        const auto samples = static_cast<double>(task_.samples_of_step());
        std::optional<progress> shown;
        if (rank() == 0) { shown.emplace(first, in_.args.steps, in_.args.time_limit_s); }
        start_ = clock::now();
        pulse::traffic_count before;
        while (state_.step < in_.args.steps && !outcome_.stop) {
            // The fifth step is a warm one; the first is kept in case that no more follow.
            const bool traced = state_.step == first || state_.step == first + 4;
            if (traced) {
                transport_.sum({});
                executor_.record(executor_.instructions().instructions.size());
                before = transport_.sent();
            }
            const auto began = clock::now();
            if (traced) { origin_ns_ = pulse::trace::now_ns(); }
            task_.begin(state_.position, optimizer_.loss_scale());
            executor_.step(task_);
            if (!not_finite_.empty()) { find_not_finite(); }
            ++state_.step;
            state_.position += task_.samples_of_step();
            const double seconds = seconds_since(began);
            if (traced) { keep_trace(before); }
            if (rank() == 0) {
                mine_.losses.push_back(outcome_.loss);
                mine_.step_seconds.push_back(seconds);
                shown->step_done(state_.step, outcome_.loss, samples / seconds);
            }
            if (in_.args.checkpoint_every > 0 && state_.step % in_.args.checkpoint_every == 0) { write_checkpoint(); }
        }
        shown.reset();
        finish(first);
        return std::move(mine_);
    }

private:
    using clock = std::chrono::steady_clock;

    [[nodiscard]] static double seconds_since(clock::time_point t) {
        return std::chrono::duration<double>(clock::now() - t).count();
    }
    [[nodiscard]] int rank() const { return transport_.rank(); }

    [[nodiscard]] bool asks_to_stop() const {
        return in_.stop->load() || (in_.args.time_limit_s > 0 && seconds_since(start_) > in_.args.time_limit_s);
    }

    void optimize() {
        if (!not_finite_.empty()) { return; } // the step is run again only to be looked at
        const pulse::train::learning_rate_schedule rate{.peak = in_.args.learning_rate,
                                                        .warmup_steps = in_.args.warmup};
        const std::int64_t step = state_.step + 1;
        try {
            outcome_ = optimizer_.step(executor_.parameters(), transport_, step, rate.at(step), task_, asks_to_stop());
        } catch (const pulse::train::not_finite_error& e) { not_finite_ = e.what(); }
    }

    /// Runs the step again, which changed nothing, and says where the first number that is not finite was made.
    [[noreturn]] void find_not_finite() {
        executor_.watch_values(true);
        task_.begin(state_.position, optimizer_.loss_scale());
        executor_.step(task_);
        const auto first = pulse::earliest_fault(transport_, executor_.first_fault());
        std::string text = "step " + std::to_string(state_.step + 1) + ": " + not_finite_;
        if (first) {
            constexpr auto graph = pulse::graph_of<Model>();
            text += "; " + pulse::to_text(*first, graph.view());
        }
        throw pulse::error{text};
    }

    void resume() {
        optimizer_.set_state(executor_.parameters(), [this](const rank_state<float>& kept) {
            const auto tensors = tensors_of<Model>(executor_.parameters().blocks(), kept);
            pulse::train::checkpoint_reader reader{pulse::train::find_checkpoint(transport_, in_.resume_from)};
            reader.read(pulse::train::ranges_of<float>(tensors));
            state_ = reader.state();
        });
        optimizer_.set_scaling(loss_scaling_in(state_.config));
    }

    void write_checkpoint() {
        optimizer_.read_state(executor_.parameters(),
                              [this](const rank_state<const float>& kept) { write_checkpoint(kept); });
    }

    void write_checkpoint(const rank_state<const float>& kept) {
        state_.seed = in_.args.seed;
        state_.config = in_.config;
        add_to(state_.config, optimizer_.scaling());
        const auto tensors = tensors_of<Model>(executor_.parameters().blocks(), kept);
        const auto saved = checkpoints_.save(transport_, pulse::train::ranges_of<const float>(tensors), state_);
        saved_ = {state_.step, saved.folder};
        if (rank() == 0 && !saved.not_removed.empty()) {
            std::fprintf(stderr, "pulse_train: %s\n", saved.not_removed.c_str());
        }
    }

    void keep_trace(const pulse::traffic_count& before) {
        transport_.sum({});
        // Threads have one clock. Processes may not: each counts from when all have come.
        double origin = rank() == 0 || in_.args.processes != nullptr ? static_cast<double>(origin_ns_) : 0.0;
        if (in_.args.processes == nullptr) { transport_.sum({&origin, 1}); }
        const traced_rank of_rank{rank(), executor_.place(), executor_.model(), executor_.instructions().instructions,
                                  static_cast<std::int64_t>(origin)};
        mine_.events = events_of(of_rank, executor_.recorded().events());
        for (auto& e : reductions_of(of_rank, executor_.recorded().reductions())) {
            mine_.events.push_back(std::move(e));
        }
        mine_.busy_us = 0;
        for (const auto& e : mine_.events) {
            mine_.busy_us += e.lane == 0 && e.kind != 'O' ? e.end_us - e.start_us : 0.0;
        }
        const pulse::traffic_count after = transport_.sent();
        mine_.sent = {};
        mine_.sent.boundary = after.boundary - before.boundary;
        mine_.sent.skip = after.skip - before.skip;
        mine_.sent.gradient = after.gradient - before.gradient;
    }

    /// What the plan has for the rank: for its device on the replica with the largest shares of state, with its own
    /// instead.
    [[nodiscard]] std::int64_t planned_bytes() const {
        const int device = executor_.place().device;
        const auto kept_by = [&](int replica) {
            return pulse::kept_bytes_on(executor_.model(), device, in_.plan.data_degree, replica, in_.kept);
        };
        return in_.plan.predicted.peak_memory_bytes[static_cast<std::size_t>(device)] -
               kept_by(in_.plan.data_degree - 1) + kept_by(executor_.place().replica);
    }

    /// The last checkpoint, and what the rank leaves.
    void finish(std::int64_t first) {
        mine_.rank = rank();
        mine_.planned_bytes = planned_bytes();
        mine_.measured_bytes = executor_.memory().used_bytes() + executor_.replica_bytes() +
                               executor_.parameters().bytes() + optimizer_.bytes();
        optimizer_.read_state(executor_.parameters(), [this](const rank_state<const float>& kept) {
            if (saved_.first != state_.step) { write_checkpoint(kept); }
            if (in_.args.sample == 0 || executor_.place().replica != 0) { return; }
            for (const auto& block : executor_.parameters().blocks()) {
                const auto average = kept.average.subspan(block.first, block.size);
                mine_.averages[block.layer].assign(average.begin(), average.end());
            }
        });
        if (rank() == 0) { pulse::train::export_merged(saved_.second, in_.file(checkpoint_name)); }
        mine_.steps_run = state_.step - first;
        mine_.last_step = state_.step;
    }

    const run_inputs& in_;
    pulse::any_transport transport_;
    math math_;
    pulse::executor<Model, math> executor_;
    typename Side::optimizer optimizer_;
    typename Side::task task_;
    pulse::train::training_state state_{};
    pulse::train::sharded_checkpoints<> checkpoints_;
    std::pair<std::int64_t, std::filesystem::path> saved_{-1, {}}; ///< the step of the last checkpoint, and its folder
    pulse::train::step_outcome outcome_{};
    std::string not_finite_{}; ///< what the optimizer said of the step
    rank_results mine_{};
    std::int64_t origin_ns_{};
    clock::time_point start_{};
};

/// Trains on the ranks of a side; whatever stops one rank is thrown here. Where ranks are processes, rank 0 has the
/// results. `ready` is called once, when every rank has all that it needs and has checked it: nothing is written
/// before.
template <class Model, class Side, class Ready>
[[nodiscard]] run_results train(const Side& side, const run_inputs& in, const Ready& ready) {
    std::vector<rank_results> results;
    side.run_ranks(in, [&](const pulse::any_transport& among) {
        training_rank<Model, Side> rank{side, in, among};
        among.sum({});
        if (among.rank() == 0) { ready(); }
        const auto all = among.gather(to_bytes(rank.run()));
        for (const auto& bytes : all) { results.push_back(rank_results_from(bytes)); }
    });
    return joined(std::move(results));
}

} // namespace pulse_train
