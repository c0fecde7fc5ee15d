#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <support/conditions.hpp>
#include <support/unpipelined.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/graph_of.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/runtime/executor.hpp>
#include <pulse/runtime/step_memory.hpp>
#include <pulse/threads/transport.hpp>

namespace pulse::test {

/// Input, timesteps, target and initial parameters that depend on the seed alone: every rank draws the same.
template <class T>
std::vector<T> draw_values(std::uint64_t seed, std::uint64_t stream, std::size_t n) {
    std::mt19937_64 random{seed * 1000003U + stream};
    std::uniform_real_distribution<double> uniform{-1.0, 1.0};
    std::vector<T> values(n);
    for (T& v : values) { v = static_cast<T>(uniform(random)); }
    return values;
}

template <class Model, class T, class A = T>
struct drawn_data {
    static constexpr std::int64_t in = Model::template layer_at<0>::input::elements;
    static constexpr std::int64_t out = Model::template layer_at<Model::layer_count - 1>::output::elements;
    std::uint64_t seed{};
    int batch{1};
    int microbatches{1};
    extent to{};

    [[nodiscard]] std::vector<T> input(int m) const { return draw<T>(1000 + m, graph().layers.front().input_elements); }
    [[nodiscard]] std::vector<A> timesteps(int m) const { return draw<A>(2000 + m, 1); }
    [[nodiscard]] std::vector<T> text(int m) const { return draw<T>(4000 + m, text_elements_of<Model>()); }
    [[nodiscard]] std::vector<A> facts(int m) const {
        return draw_facts<Model, A>(seed * 1000003U + static_cast<std::uint64_t>(5000 + m), batch);
    }
    [[nodiscard]] std::vector<T> target(int m) const {
        return draw<T>(3000 + m, graph().layers.back().output_elements);
    }
    [[nodiscard]] std::vector<T> parameters(int layer, std::size_t n) const {
        return draw_values<T>(seed, static_cast<std::uint64_t>(layer + 10), n);
    }
    [[nodiscard]] std::vector<T> frozen_parameters(int layer, std::size_t n) const {
        return draw_values<T>(seed, static_cast<std::uint64_t>(layer + 510), n);
    }

private:
    [[nodiscard]] auto graph() const { return graph_of<Model>(resize<Model>(to)); }
    template <class Each>
    [[nodiscard]] std::vector<Each> draw(int stream, std::int64_t per_sample) const {
        return draw_values<Each>(seed, static_cast<std::uint64_t>(stream),
                                 static_cast<std::size_t>(per_sample * batch));
    }
};

/// An executor task: one squared-error step over drawn data.
template <class Model, class T, class A = T>
struct drawn_task {
    drawn_data<Model, T, A> data;
    std::vector<std::vector<T>> inputs{}, texts{}, targets{};
    std::vector<std::vector<A>> times{}, known{};
    std::vector<double> losses{};
    int optimized{};

    explicit drawn_task(const drawn_data<Model, T, A>& from) :
        data{from}, losses(static_cast<std::size_t>(from.microbatches)) {
        for (int m = 0; m != from.microbatches; ++m) {
            inputs.push_back(data.input(m));
            times.push_back(data.timesteps(m));
            texts.push_back(data.text(m));
            known.push_back(data.facts(m));
            targets.push_back(data.target(m));
        }
    }
    [[nodiscard]] const A* timesteps(int m) const { return times[static_cast<std::size_t>(m)].data(); }
    [[nodiscard]] const T* text(int m) const { return texts[static_cast<std::size_t>(m)].data(); }
    [[nodiscard]] const A* facts(int m) const { return known[static_cast<std::size_t>(m)].data(); }
    void input(int m, T* x) const {
        const auto& from = inputs[static_cast<std::size_t>(m)];
        std::copy(from.begin(), from.end(), x);
    }
    void loss(int m, const T* y, T* dy) {
        const auto& want = targets[static_cast<std::size_t>(m)];
        double sum = 0;
        for (std::size_t i = 0; i != want.size(); ++i) {
            const A difference = static_cast<A>(y[i]) - static_cast<A>(want[i]);
            dy[i] = static_cast<T>(difference);
            sum += 0.5 * static_cast<double>(difference) * static_cast<double>(difference);
        }
        losses[static_cast<std::size_t>(m)] = sum;
    }
    void optimize() { ++optimized; }
};

/// Bytes from the start of an area to the last one that is not poison.
inline std::int64_t written_bytes(std::span<const std::byte> area) {
    auto end = area.size();
    while (end != 0 && area[end - 1] == std::byte{0xFF}) { --end; }
    return static_cast<std::int64_t>(end);
}

/// Fills everything that a step may use with bytes that are NaN in any scalar type: a read before a write shows in the
/// gradients, and untouched bytes can be told from written ones.
inline void poison(const step_memory& memory) {
    const auto fill = [](std::span<std::byte> area) { std::fill(area.begin(), area.end(), std::byte{0xFF}); };
    fill(memory.block_bytes());
    fill(memory.workspace_bytes());
    for (std::size_t slot = 0; slot != memory.slot_count(); ++slot) { fill(memory.slot_bytes(slot)); }
}

/// The results of a run: gradients by layer (conditioning_block: the conditioning module's), losses, traffic, memory.
template <class A>
struct run_result {
    std::map<int, std::vector<A>> gradients{};
    std::vector<double> losses{};
    traffic_count sent{};
    /// By rank. A block counts up to the last byte that a step wrote, rounded up to the alignment of tensors.
    std::vector<std::int64_t> planned_bytes{}, measured_bytes{}, planned_live{}, measured_live{};
    std::vector<std::int64_t> planned_block{}, written_block{}, planned_workspace{}, written_workspace{};
    std::size_t most_skips_held{};
};

/// The task of a plan with previews: keeps adding half of the prediction to the input.
template <class Model, class T, class A = T>
struct conditioned_task : drawn_task<Model, T, A> {
    using drawn_task<Model, T, A>::drawn_task;

    void input(int m, T* x, const T* prediction) const {
        drawn_task<Model, T, A>::input(m, x);
        if (prediction == nullptr) { return; }
        const auto& of = this->data;
        for (std::size_t i = 0; i != static_cast<std::size_t>(of.in * of.batch); ++i) {
            const A shown = static_cast<A>(prediction[i % static_cast<std::size_t>(of.out * of.batch)]);
            x[i] = static_cast<T>(static_cast<A>(x[i]) + static_cast<A>(0.5) * shown);
        }
    }
};

/// Runs `steps` steps of a plan on thread ranks; gradients are those of the last step.
template <class Model, class Backend, template <class, class, class> class Task = drawn_task>
run_result<typename Backend::accumulator> run_pipelined(const plan& planned, std::uint64_t seed,
                                                        const threads::link_options& link = {}, int steps = 1,
                                                        const extent& to = {}) {
    using T = typename Backend::scalar;
    using A = typename Backend::accumulator;
    const auto graph = graph_of<Model>(resize<Model>(to));
    const cost_table costs = blank_costs(graph.view(), planned.microbatch_size, sizeof(T));
    run_result<A> result;
    const auto ranks = static_cast<std::size_t>(planned.pipeline_degree);
    for (auto* of_ranks :
         {&result.planned_bytes, &result.measured_bytes, &result.planned_live, &result.measured_live,
          &result.planned_block, &result.written_block, &result.planned_workspace, &result.written_workspace}) {
        of_ranks->resize(ranks);
    }
    std::mutex mutex;
    threads::run_ranks(planned.pipeline_degree, link, [&](threads::transport& transport) {
        Backend math;
        executor<Model, Backend> rank{math, transport, planned, costs, {.extent = to}};
        Task<Model, T, A> task{drawn_data<Model, T, A>{seed, planned.microbatch_size, planned.microbatches, to}};
        for (const auto& block : rank.parameters().blocks()) {
            const auto drawn = task.data.parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), rank.parameters().values_of(block.layer).begin());
        }
        for (const auto& block : rank.parameters().frozen_blocks()) {
            const auto drawn = task.data.frozen_parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), rank.parameters().frozen_values_of(block.layer).begin());
        }
        for (int s = 0; s != steps; ++s) {
            std::fill(rank.parameters().gradients().begin(), rank.parameters().gradients().end(),
                      std::numeric_limits<A>::quiet_NaN());
            poison(rank.memory());
            rank.step(task);
        }
        for (const auto& block : rank.parameters().frozen_blocks()) {
            const auto kept = rank.parameters().frozen_values_of(block.layer);
            const auto drawn = task.data.frozen_parameters(block.layer, block.size);
            if (!std::equal(kept.begin(), kept.end(), drawn.begin())) { throw error{"a step changed frozen weights"}; }
        }
        std::unique_lock lock{mutex};
        for (const auto& block : rank.parameters().blocks()) {
            const auto g = rank.parameters().gradients_of(block.layer);
            result.gradients[block.layer] = {g.begin(), g.end()};
        }
        if (result.losses.empty() || task.losses[0] != 0) { result.losses = task.losses; }
        result.sent += transport.sent();
        const auto r = static_cast<std::size_t>(transport.rank());
        result.planned_bytes[r] = rank.layout().total_bytes();
        result.planned_block[r] = rank.layout().block_bytes;
        result.written_block[r] = aligned(written_bytes(rank.memory().block_bytes()));
        result.planned_workspace[r] = rank.layout().workspace_bytes;
        result.written_workspace[r] = written_bytes(rank.memory().workspace_bytes());
        result.measured_bytes[r] = rank.memory().used_bytes() - result.planned_block[r] + result.written_block[r];
        result.planned_live[r] = rank.layout().live_peak_bytes;
        result.measured_live[r] = rank.memory().most_live_bytes();
        result.most_skips_held = std::max(result.most_skips_held, rank.skips().most_held());
        if (rank.memory().live_bytes() != 0) { throw error{"a step left buffers alive"}; }
        if (task.optimized != steps) { throw error{"optimize was not called once a step"}; }

        // An evaluation reads only what its own passes have written, and its losses equal the step's.
        lock.unlock();
        const std::vector<double> losses = std::exchange(task.losses, std::vector<double>(task.losses.size()));
        poison(rank.memory());
        rank.evaluate(task);
        if (task.losses != losses) { throw error{"an evaluation has other losses than the step"}; }
        if (rank.memory().live_bytes() != 0) { throw error{"an evaluation left buffers alive"}; }
    });
    return result;
}

/// Runs the same step without a pipeline, executor or plan: run_pipelined must equal it bit for bit. The last
/// `previews` microbatches first run forward an extra time, and their input uses that prediction.
template <class Model, class Backend>
run_result<typename Backend::accumulator> run_unpipelined(int batch, int microbatches, std::uint64_t seed,
                                                          int previews = 0, const extent& to = {}) {
    using T = typename Backend::scalar;
    using A = typename Backend::accumulator;
    Backend math;
    unpipelined<Model, Backend> oracle{math, to};
    conditioned_task<Model, T, A> task{drawn_data<Model, T, A>{seed, batch, microbatches, to}};
    for (int l = 0; l != static_cast<int>(Model::part_count); ++l) {
        const std::span<T> values = oracle.parameters_of_part(l);
        const std::span<T> frozen = oracle.frozen_parameters_of_part(l);
        std::ranges::copy(task.data.parameters(l, values.size()), values.begin());
        std::ranges::copy(task.data.frozen_parameters(l, frozen.size()), frozen.begin());
    }
    oracle.conditioning_parameters = task.data.parameters(conditioning_block, oracle.conditioning_parameters.size());
    for (int m = 0; m != microbatches; ++m) {
        const auto at = static_cast<std::size_t>(m);
        const auto forward = [&](const T* prediction) {
            std::vector<T> x(task.inputs[at].size());
            task.input(m, x.data(), prediction);
            return oracle.forward(batch, std::move(x), task.times[at], task.texts[at], task.known[at]);
        };
        const bool previewed = m >= microbatches - previews;
        const std::vector<T> shown = previewed ? oracle.output(forward(nullptr)) : std::vector<T>{};
        auto tape = forward(previewed ? shown.data() : nullptr);
        std::vector<T> gradient(oracle.output(tape).size());
        task.loss(m, oracle.output(tape).data(), gradient.data());
        oracle.backward(tape, std::move(gradient));
    }
    run_result<A> result;
    for (int l = 0; l != static_cast<int>(Model::part_count); ++l) {
        const std::span<A> gradients = oracle.gradients_of_part(l);
        result.gradients[l] = {gradients.begin(), gradients.end()};
    }
    if constexpr (Model::is_conditioned) { result.gradients[conditioning_block] = oracle.conditioning_gradients; }
    result.losses = task.losses;
    return result;
}

} // namespace pulse::test
