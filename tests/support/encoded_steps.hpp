#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <support/drawn_recomputation.hpp>
#include <support/pipelined.hpp>
#include <support/random_frozen.hpp>
#include <support/random_plan.hpp>
#include <support/replicated.hpp>
#include <support/toy_model.hpp>
#include <pulse/core/error.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::test {

using encoded_math = reference::backend<float>;
using encoded_model = toy_model<5, 8, wiring::nested, true>;

/// Two frozen components: one produces the model's inputs, the other its targets.
inline constexpr std::array<std::int64_t, 2> result_widths{drawn_data<encoded_model, float>::in,
                                                           drawn_data<encoded_model, float>::out};
inline constexpr int chain_layers = 3;

/// The output of a component for a sample after its first `done` layers.
inline std::vector<float> encoded_by(int component, std::uint64_t seed, int step, int sample, int done = chain_layers) {
    auto values = draw_values<float>(seed, static_cast<std::uint64_t>(10000 + 1000 * component + 100 * step + sample),
                                     static_cast<std::size_t>(result_widths[static_cast<std::size_t>(component)]));
    for (int l = 0; l != done; ++l) {
        for (float& v : values) { v = 0.75F * v + 0.125F * static_cast<float>(l + 1); }
    }
    return values;
}

/// Runs the layers of a call on its samples, and calls `ran(layer, sample)` after each.
void encode_samples(std::uint64_t seed, int of_step, const encoding& call, auto&& ran) {
    const auto place = [](std::span<const encoding_piece> pieces, int sample, std::size_t bytes) -> std::byte* {
        for (const encoding_piece& p : pieces) {
            if (p.first_sample <= sample && sample < p.first_sample + p.samples) {
                return p.data + static_cast<std::size_t>(sample - p.first_sample) * bytes;
            }
        }
        throw error{"no piece has the sample"};
    };
    for (int s = call.what.first_sample; s != call.what.first_sample + call.what.samples; ++s) {
        std::vector<float> values = encoded_by(call.what.component, seed, of_step, s, 0);
        const std::size_t bytes = values.size() * sizeof(float);
        if (call.what.first_layer != 0) { std::memcpy(values.data(), place(call.from, s, bytes), bytes); }
        for (int l = call.what.first_layer; l <= call.what.last_layer; ++l) {
            for (float& v : values) { v = 0.75F * v + 0.125F * static_cast<float>(l + 1); }
            ran(l, s);
        }
        std::memcpy(place(call.to, s, bytes), values.data(), bytes);
    }
}

/// How often each layer ran on each sample, by component, layer, step, replica and sample.
struct encode_tally {
    std::mutex mutex{};
    std::map<std::array<int, 5>, int> runs{};
};

/// Trains on the results of frozen tasks or, without any, on results that it computes itself.
struct encoding_task : drawn_task<encoded_model, float> {
    std::uint64_t seed;
    int replica;
    int batch;
    int step{};
    encode_tally& seen;
    const encoded_results* results{};
    encoded_results latest{frozen_flow{}, 0, nullptr};

    encoding_task(const drawn_data<encoded_model, float>& from, int of_replica, encode_tally& all) :
        drawn_task{from}, seed{from.seed}, replica{of_replica}, batch{from.batch}, seen{all} {}

    void encode(const encoding& call) {
        const int of_step = step + (call.for_next_step ? 1 : 0);
        encode_samples(seed, of_step, call, [&](int layer, int sample) {
            const std::lock_guard lock{seen.mutex};
            ++seen.runs[{call.what.component, layer, of_step, replica, sample}];
        });
    }
    void encoded(const encoded_results& now) {
        latest = now;
        results = &latest;
    }
    void copy_result(int component, int m, std::vector<float>& to) const {
        const std::size_t each = to.size() / static_cast<std::size_t>(batch);
        for (int i = 0; i != batch; ++i) {
            const int sample = m * batch + i;
            float* const at = to.data() + static_cast<std::size_t>(i) * each;
            if (results != nullptr) {
                std::memcpy(at, results->of(component, sample), each * sizeof(float));
            } else {
                const auto own = encoded_by(component, seed, step, sample);
                std::copy(own.begin(), own.end(), at);
            }
        }
    }
    void input(int m, float* x) {
        copy_result(0, m, inputs[static_cast<std::size_t>(m)]);
        drawn_task::input(m, x);
    }
    void loss(int m, const float* y, float* dy) {
        copy_result(1, m, targets[static_cast<std::size_t>(m)]);
        drawn_task::loss(m, y, dy);
        all_losses.push_back(losses[static_cast<std::size_t>(m)]);
    }
    std::vector<double> all_losses{};
};

/// The outcome of steps on one rank: its losses, and the gradients of the last step by layer.
struct encoded_steps {
    std::vector<double> losses{};
    std::map<int, std::vector<float>> gradients{};
    bool memory_as_planned{};
};

/// Runs steps of a plan on one rank of a host-memory transport; step `forgets` loses the results encoded for it.
template <class Transport>
encoded_steps run_encoded_rank(Transport& transport, const plan& planned, const cost_table& costs, std::uint64_t seed,
                               int steps, encode_tally& seen, int forgets = -1) {
    encoded_math on;
    executor<encoded_model, encoded_math> rank{on, transport, planned, costs};
    const int replica = rank.place().replica;
    encoding_task task{
        {seed + static_cast<std::uint64_t>(replica), planned.microbatch_size, planned.microbatches}, replica, seen};
    for (const auto& block : rank.parameters().blocks()) {
        const auto drawn = draw_values<float>(seed, static_cast<std::uint64_t>(block.layer + 10), block.size);
        std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
    }
    for (task.step = 0; task.step != steps; ++task.step) {
        std::fill(rank.parameters().gradients().begin(), rank.parameters().gradients().end(),
                  std::numeric_limits<float>::quiet_NaN());
        poison(rank.memory());
        if (task.step == forgets) { rank.forget_results(); }
        rank.step(task);
    }
    encoded_steps made;
    made.losses = task.all_losses;
    for (const auto& block : rank.parameters().blocks()) {
        const auto g = rank.parameters().gradients_of(block.layer);
        made.gradients[block.layer] = {g.begin(), g.end()};
    }
    made.memory_as_planned = rank.memory().used_bytes() == rank.layout().total_bytes() &&
                             rank.memory().most_live_bytes() == rank.layout().live_peak_bytes;
    return made;
}

/// Runs the same on thread ranks; the outcomes are keyed by rank.
inline std::map<int, encoded_steps> run_encoded(const plan& planned, const cost_table& costs, std::uint64_t seed,
                                                int steps, encode_tally& seen, int delay_us = 0, int forgets = -1) {
    std::map<int, encoded_steps> made;
    std::mutex mutex;
    threads::run_ranks(planned.pipeline_degree * planned.data_degree, {}, [&](threads::transport& plain) {
        drifting_transport transport{plain, delay_us, static_cast<unsigned>(seed)};
        encoded_steps mine = run_encoded_rank(transport, planned, costs, seed, steps, seen, forgets);
        const std::lock_guard lock{mutex};
        made[transport.rank()] = std::move(mine);
    });
    return made;
}

inline cost_table costs_with_frozen(int batch) {
    cost_table costs = blank_costs(graph_of<encoded_model>().view(), batch, sizeof(float));
    for (std::size_t c = 0; c != result_widths.size(); ++c) {
        const std::int64_t bytes = result_widths[c] * std::int64_t{sizeof(float)};
        frozen_component one{.name = label{"frozen"} + static_cast<unsigned>(c),
                             .feeds = c == 0 ? frozen_use::input : frozen_use::target,
                             .result_bytes = bytes,
                             .max_chunk = 64};
        for (int l = 0; l != chain_layers; ++l) {
            one.layers.push_back({label{"f"} + static_cast<unsigned>(l), 1.0, 1.0, 0, bytes, bytes});
        }
        costs.frozen.push_back(one);
    }
    return costs;
}

/// Draws a plan without frozen tasks; it has no stages if no cut was found.
inline plan draw_encoded_plan(std::mt19937& random, int devices) {
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    plan p;
    p.pipeline_degree = devices;
    p.data_degree = draw(1, 2);
    p.microbatches = draw(1, 4);
    p.microbatch_size = draw(1, 3);
    p.split_backward = draw(0, 1) == 1;
    p.spare_sends = draw(0, 2);
    const auto kind = static_cast<placement>(draw(0, 2));
    p.cut = draw_cut(costs_with_frozen(p.microbatch_size), kind, devices,
                     kind == placement::sequential ? 1 : draw(1, 2), random);
    p.recompute = drawn_recomputation(draw, p.cut.stages.size());
    if (!p.cut.stages.empty()) { p.order = draw_order(p.cut, p.microbatches, p.split_backward, random); }
    return p;
}

} // namespace pulse::test
