#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <support/wave.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/threads/transport.hpp>
#include <pulse/train/trainer.hpp>
#include <pulse/tune/plan_for.hpp>

namespace pulse::test {

using wave_math = reference::backend<float>;

/// A wave task with timesteps and texts.
struct wave_task : wave {
    [[nodiscard]] const float* timesteps(const work<wave_math>& at) {
        auto& of = times[at.first_sample];
        of.resize(static_cast<std::size_t>(at.samples));
        for (std::size_t i = 0; i != of.size(); ++i) { of[i] = static_cast<float>((at.first_sample + i) % 7); }
        return of.data();
    }
    [[nodiscard]] const float* text(const work<wave_math>& at) {
        auto& of = texts[at.first_sample];
        of.resize(static_cast<std::size_t>(at.samples) * 7 * 24);
        for (std::size_t i = 0; i != of.size(); ++i) { of[i] = value(at.first_sample, i); }
        return of.data();
    }

    std::map<std::uint64_t, std::vector<float>> times{}, texts{};
};

/// What a run produces, independently of the plan.
struct trained {
    std::map<int, std::vector<float>> weights{}, frozen{};
    std::vector<double> losses{};
    [[nodiscard]] bool operator==(const trained&) const = default;
};

struct measured {
    trained result{};
    traffic_count sent{};
};

template <class Model>
measured train_on(const tuning& made, int steps) {
    const std::vector<std::int64_t> planned_bytes = peak_bytes(made.plan, made.costs, made.kept);
    measured all;
    std::mutex mutex;
    threads::run_ranks(made.plan.pipeline_degree, {}, [&](threads::transport& transport) {
        trainer<Model, wave_math> rank{transport, made, {.seed = 3, .learning_rate = {.peak = 1e-2}}};
        wave_task data;
        std::vector<double> losses;
        for (int s = 0; s != steps; ++s) { losses.push_back(rank.step(data).loss); }
        const std::lock_guard lock{mutex};
        auto& owned = rank.runner().parameters();
        for (const auto& b : owned.blocks()) {
            all.result.weights[b.layer].assign(owned.values_of(b.layer).begin(), owned.values_of(b.layer).end());
        }
        for (const auto& b : owned.frozen_blocks()) {
            const auto values = owned.frozen_values_of(b.layer);
            all.result.frozen[b.layer].assign(values.begin(), values.end());
        }
        all.result.losses = losses;
        all.sent += transport.sent();
        CHECK(rank.bytes() == planned_bytes[static_cast<std::size_t>(transport.rank())]);
    });
    return all;
}

template <class Model>
tuning plan_on(int ranks, bool split, const extent& to = {}) {
    plan_request wanted{.devices = ranks,
                        .global_batch = 6,
                        .device = cpu_core,
                        .extent = to,
                        .pipeline_degree = ranks,
                        .waves = 1,
                        .microbatch_size = 2,
                        .placement = placement::folded,
                        .split_backward = split,
                        .seconds = 0.0};
    return plan_for<Model, wave_math>(wanted);
}

} // namespace pulse::test
