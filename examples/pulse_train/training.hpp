#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include <pulse/host/threads.hpp>
#include <pulse/nn/initialise.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/train/checkpoint.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/learning_rate.hpp>
#include <pulse/train/rank_optimizer.hpp>

#include "artifacts.hpp"
#include "progress.hpp"
#include "run_inputs.hpp"
#include "shared_state.hpp"
#include "timeline.hpp"

namespace pulse_train {

/// One rank's part of a training run.
template <class Model, class Policy>
class training_rank {
public:
    training_rank(const run_inputs& in, pulse::host::thread_transport& transport, shared_state& shared) :
        in_{in}, transport_{transport}, shared_{shared}, math_{in.args.threads},
        executor_{math_, transport, in.plan, in.costs}, optimizer_{Model::layer_count,
                                                                   static_cast<std::size_t>(in.plan.microbatches),
                                                                   executor_.parameters().values().size(),
                                                                   pulse::train::adamw_constants{.weight_decay = 0.0},
                                                                   in.args.clip_norm,
                                                                   in.args.average_decay},
        task_{*in.images,
              *in.noise,
              {.seed = in.args.seed,
               .prediction = in.args.prediction,
               .microbatch_size = in.plan.microbatch_size,
               .microbatches = in.plan.microbatches},
              [this] { optimize(); }} {
        for (const auto& block : executor_.parameters().blocks()) {
            pulse::nn::initialise<float>(pulse::parameters_of<Model>(block.layer), in.args.seed,
                                         executor_.parameters().values_of(block.layer));
        }
        optimizer_.start_average(executor_.parameters().values());
        if (!in.args.resume.empty()) { resume(); }
    }

    void run() {
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
            if (traced && rank() == 0) { origin_ns_ = pulse::trace::now_ns(); }
            task_.begin(state_.position);
            executor_.step(task_);
            ++state_.step;
            state_.position += task_.samples_of_step();
            const double seconds = seconds_since(began);
            if (traced) { keep_trace(before); }
            if (rank() == 0) {
                shared_.losses.push_back(outcome_.loss);
                shared_.step_seconds.push_back(seconds);
                shown->step_done(state_.step, outcome_.loss, samples / seconds);
            }
            if (in_.args.checkpoint_every > 0 && state_.step % in_.args.checkpoint_every == 0) { write_checkpoint(); }
        }
        shown.reset();
        write_checkpoint();
        finish(first);
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
        const pulse::train::learning_rate_schedule rate{.peak = in_.args.learning_rate,
                                                        .warmup_steps = in_.args.warmup};
        const std::int64_t step = state_.step + 1;
        outcome_ =
            optimizer_.step(executor_.parameters(), transport_, step, rate.at(step), task_.losses(), asks_to_stop());
        math_.weights_changed();
    }

    void resume() {
        std::vector<pulse::train::named_tensor_ref> mine;
        append_tensors<Model>(mine, executor_.parameters(), optimizer_);
        state_ = pulse::train::load_checkpoint(in_.args.resume, mine, pulse::train::checkpoint_match::some);
    }

    void write_checkpoint() {
        transport_.sum({});
        {
            const std::lock_guard lock{shared_.mutex};
            append_tensors<Model>(shared_.tensors, executor_.parameters(), optimizer_);
        }
        transport_.sum({});
        if (rank() == 0) {
            state_.seed = in_.args.seed;
            state_.config = in_.config;
            pulse::train::save_checkpoint(in_.file(checkpoint_name), shared_.tensors, state_);
            shared_.tensors.clear();
        }
        transport_.sum({});
    }

    void keep_trace(const pulse::traffic_count& before) {
        transport_.sum({});
        if (rank() == 0) { shared_.forget_trace(); }
        double origin = rank() == 0 ? static_cast<double>(origin_ns_) : 0.0;
        transport_.sum({&origin, 1});
        auto events = events_of(rank(), executor_.model(), executor_.instructions().instructions,
                                executor_.recorded().events(), static_cast<std::int64_t>(origin));
        double busy_us = 0;
        for (const auto& e : events) { busy_us += e.lane == 0 && e.kind != 'O' ? e.end_us - e.start_us : 0.0; }
        pulse::traffic_count after = transport_.sent();
        const std::lock_guard lock{shared_.mutex};
        shared_.events.insert(shared_.events.end(), events.begin(), events.end());
        shared_.busy_us.push_back(busy_us);
        shared_.boundary_bytes += after.boundary - before.boundary;
        shared_.skip_bytes += after.skip - before.skip;
    }

    void finish(std::int64_t first) {
        const std::lock_guard lock{shared_.mutex};
        const auto r = static_cast<std::size_t>(rank());
        shared_.planned_bytes.resize(std::max(shared_.planned_bytes.size(), r + 1));
        shared_.measured_bytes.resize(std::max(shared_.measured_bytes.size(), r + 1));
        shared_.planned_bytes[r] = in_.plan.predicted.peak_memory_bytes[r];
        shared_.measured_bytes[r] =
            executor_.memory().used_bytes() + executor_.parameters().bytes() + optimizer_.bytes();
        for (const auto& block : executor_.parameters().blocks()) {
            const auto average = optimizer_.average().subspan(block.first, block.size);
            shared_.averages[block.layer].assign(average.begin(), average.end());
        }
        shared_.steps_run = state_.step - first;
        shared_.last_step = state_.step;
    }

    const run_inputs& in_;
    pulse::host::thread_transport& transport_;
    shared_state& shared_;
    math math_;
    pulse::executor<Model, math, pulse::host::thread_transport, Policy> executor_;
    rank_optimizer optimizer_;
    pulse::train::diffusion_task task_;
    pulse::train::training_state state_{};
    pulse::train::step_outcome outcome_{};
    std::int64_t origin_ns_{};
    clock::time_point start_{};
};

/// Trains on thread ranks; whatever stops one rank is thrown here. `ready` is called once, when every rank has all that
/// it needs and has checked it: nothing is written before.
template <class Model, class Ready>
void train(const run_inputs& in, shared_state& shared, const Ready& ready) {
    const auto run_as = [&]<class Policy>(Policy, pulse::host::thread_transport& transport) {
        training_rank<Model, Policy> rank{in, transport, shared};
        transport.sum({});
        if (transport.rank() == 0) { ready(); }
        rank.run();
    };
    pulse::host::run_ranks(in.plan.pipeline_degree, {}, [&](pulse::host::thread_transport& transport) {
        if (pulse::resident::serves(in.plan.recompute)) {
            run_as(pulse::resident{}, transport);
        } else {
            run_as(pulse::recomputed{}, transport);
        }
    });
}

} // namespace pulse_train
