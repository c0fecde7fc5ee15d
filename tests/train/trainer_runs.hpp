#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <vector>

#include <support/drawn_recomputation.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <support/wave.hpp>
#include <pulse/plan/kept_by.hpp>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/trainer.hpp>

namespace trainers {

using namespace pulse;
using namespace pulse::test;

using net = toy_model<1, 18, wiring::nested, true>;
using math = reference::backend<float>;

inline constexpr int batch = 2;
inline constexpr int microbatches = 3;

/// A task that may spoil a sample.
struct sine_task : wave {
    std::uint64_t spoilt = std::numeric_limits<std::uint64_t>::max();
    std::vector<float> times = std::vector<float>(microbatches * batch);

    template <class B>
    [[nodiscard]] const float* timesteps(const work<B>& at) {
        float* const mine = times.data() + at.microbatch * batch;
        for (int s = 0; s != batch; ++s) { mine[s] = static_cast<float>(at.first_sample) + static_cast<float>(s); }
        return mine;
    }
    template <class B>
    void input(const work<B>& at, std::span<float> x) const {
        wave::input(at, x);
        if (at.first_sample == spoilt) { x[1] = std::numeric_limits<float>::quiet_NaN(); }
    }
};
static_assert(task<sine_task, net, math>);

/// The results of a run, independent of the plan: weights, moments and average of every layer, and the steps.
struct trained {
    std::map<int, std::vector<std::vector<float>>> layers{};
    std::vector<double> losses{};
    std::vector<double> norms{};
    [[nodiscard]] bool operator==(const trained&) const = default;
};

inline const trainer_options usual{
    .seed = 3, .learning_rate = {.peak = 1e-2, .warmup_steps = 2}, .clip_norm = 0.05, .average_decay = 0.9};

inline planned draw(int pipeline, int replicas, unsigned seed, bool sharded = false, const optimizer_form& form = {}) {
    std::mt19937 random{seed};
    const auto in = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    planned made;
    made.costs = blank_costs(graph_of<net>().view(), batch, sizeof(float));
    made.kept = kept_by<net, math>(sharded, form);
    plan& p = made.plan;
    p.pipeline_degree = pipeline;
    p.data_degree = replicas;
    p.microbatches = microbatches;
    p.microbatch_size = batch;
    while (p.cut.stages.empty()) {
        p.split_backward = in(0, 1) == 1;
        const auto kind = static_cast<placement>(in(0, 4) < 3 ? 0 : in(1, 2));
        p.routing = kind == placement::sequential ? skip_routing::relayed : skip_routing::direct;
        p.cut = draw_cut(made.costs, kind, pipeline, in(1, 2), random);
        p.recompute = drawn_recomputation(in, p.cut.stages.size());
    }
    p.order = draw_order(p.cut, p.microbatches, p.split_backward, random);
    return made;
}

template <class B>
void keep(trainer<net, B>& rank, trained& run, std::mutex& mutex) {
    const train::rank_state now = rank.read_state();
    const std::lock_guard lock{mutex};
    std::size_t mean = 0;
    for (const auto& block : rank.runner().parameters().blocks()) {
        std::vector<std::vector<float>> parts;
        const auto add = [&](const std::vector<float>& all, std::size_t at, std::size_t size) {
            const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
            parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
        };
        add(now.weights, block.first, block.size);
        add(now.average, block.first, block.size);
        if (now.first_moment.empty()) {
            std::int64_t means = 0;
            for (const parameter& p : parameters_of<net>(block.layer)) {
                means += factored_elements(p.elements(), p.matrix_rows());
            }
            add(now.second_moment, mean, static_cast<std::size_t>(means));
            mean += static_cast<std::size_t>(means);
        } else {
            add(now.first_moment, block.first, block.size);
            add(now.second_moment, block.first, block.size);
        }
        const auto [at, is_new] = run.layers.emplace(block.layer, parts);
        REQUIRE((is_new || at->second == parts)); // replicas agree on a layer
    }
}

/// `each(trainer, step)` is called before every step, and once after the last.
template <class B = math, class Each>
trained run(const planned& made, int steps, const Each& each, const trainer_options& options = usual) {
    trained all;
    std::mutex mutex;
    threads::run_ranks(made.plan.pipeline_degree * made.plan.data_degree, {}, [&](threads::transport& transport) {
        trainer<net, B> rank{transport, made, options};
        sine_task data;
        std::vector<double> losses, norms;
        for (int s = 0; s != steps; ++s) {
            each(rank, s);
            const train::step_outcome done = rank.step(data);
            losses.push_back(done.loss);
            norms.push_back(done.gradient_norm);
        }
        each(rank, steps);
        keep(rank, all, mutex);
        const std::lock_guard lock{mutex};
        REQUIRE((all.losses.empty() || (all.losses == losses && all.norms == norms)));
        all.losses = losses;
        all.norms = norms;
    });
    return all;
}
template <class B = math>
trained run(const planned& made, int steps, const trainer_options& options = usual) {
    return run<B>(
        made, steps, [](auto&, int) {}, options);
}

} // namespace trainers
