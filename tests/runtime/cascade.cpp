#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include <support/drawn_cases.hpp>
#include <support/drawn_recomputation.hpp>
#include <support/locked_models.hpp>
#include <support/pipelined.hpp>
#include <support/random_plan.hpp>
#include <support/toy_model.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/plan/check.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/require_valid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/join_costs.hpp>
#include <pulse/reference/backend.hpp>
#include <pulse/train/rank_optimizer.hpp>
#include <pulse/tune/cascade_plan.hpp>

using namespace pulse;
using namespace pulse::test;

namespace {

using cascade_math = reference::backend<float>;
using weights_of = std::map<int, std::vector<float>>;

constexpr adamw_constants slow{.weight_decay = 0.01};
constexpr double rate = 0.05;

[[nodiscard]] train::optimizer_options clipped() { return {.constants = slow, .clip_norm = 0.5}; }

/// The results of training one backbone: its weights, and the loss of every step.
struct trained {
    weights_of weights{};
    std::vector<double> losses{};

    [[nodiscard]] bool operator==(const trained&) const = default;
};

/// Draws the values of the parameter blocks, by layer.
template <class Data, class Parameters>
[[nodiscard]] std::vector<float> drawn_values(const Data& data, const Parameters& parameters) {
    std::vector<float> all;
    for (const auto& block : parameters.blocks()) {
        const auto drawn = data.parameters(block.layer, block.size);
        all.insert(all.end(), drawn.begin(), drawn.end());
    }
    return all;
}

/// A rank's share of one backbone of a cascade: its data and its optimizer.
template <class Model>
struct backbone_part {
    drawn_task<Model, float> task;
    train::rank_optimizer<train::host_updates<>> optimizer;
    backend_parameters<cascade_math>& parameters;
    std::vector<double> losses{};

    backbone_part(const plan& planned, std::uint64_t seed, backend_parameters<cascade_math>& values) :
        task{drawn_data<Model, float>{seed, planned.microbatch_size, planned.microbatches}},
        optimizer{Model::layer_count, static_cast<std::size_t>(planned.microbatches), values, clipped()}, parameters{
                                                                                                              values} {
        optimizer.start(drawn_values(task.data, values), values);
        for (const auto& block : values.frozen_blocks()) {
            const auto drawn = task.data.frozen_parameters(block.layer, block.size);
            std::copy(drawn.begin(), drawn.end(), values.frozen_values_of(block.layer).begin());
        }
    }
    void step(const any_transport& ranks, int number) {
        losses.push_back(optimizer.step(parameters, ranks, number, rate, task.losses, false).loss);
    }
};

template <class First, class Second>
struct both_tasks {
    drawn_task<First, float>& first;
    drawn_task<Second, float>& second;
    int optimized{};

    void optimize() { ++optimized; }
};

struct cascade_run {
    trained first{};
    trained second{};
    traffic_count sent{};
    std::vector<std::int64_t> planned_bytes{}, measured_bytes{};
};

template <class First, class Second>
cascade_run run_cascade(const plan& planned, const cost_table& costs, std::uint64_t seed, int steps,
                        const threads::link_options& link = {}) {
    cascade_run result;
    result.planned_bytes = peak_bytes(planned, costs, adamw_memory(4));
    result.measured_bytes.resize(result.planned_bytes.size());
    std::mutex mutex;
    threads::run_ranks(planned.pipeline_degree, link, [&](threads::transport& transport) {
        cascade_math math;
        executor<cascade<First, Second>, cascade_math> rank{math, transport, planned, costs};
        backbone_part<First> one{planned, seed, rank.parameters().first};
        backbone_part<Second> other{planned, seed + 1, rank.parameters().second};
        both_tasks<First, Second> tasks{one.task, other.task};
        std::int64_t written = 0;
        for (int s = 1; s <= steps; ++s) {
            poison(rank.memory());
            rank.step(tasks);
            written = aligned(written_bytes(rank.memory().block_bytes()));
            one.step(transport, s);
            other.step(transport, s);
        }
        std::unique_lock lock{mutex};
        for (const auto& [part, kept] : {std::pair{&one.parameters, &result.first.weights},
                                         std::pair{&other.parameters, &result.second.weights}}) {
            for (const auto& block : part->blocks()) {
                const auto values = part->values_of(block.layer);
                (*kept)[block.layer] = {values.begin(), values.end()};
            }
        }
        result.first.losses = one.losses;
        result.second.losses = other.losses;
        result.sent += transport.sent();
        const auto r = static_cast<std::size_t>(transport.rank());
        result.measured_bytes[r] = rank.memory().used_bytes() - rank.layout().block_bytes + written +
                                   rank.parameters().bytes() + one.optimizer.bytes() + other.optimizer.bytes();
        if (rank.memory().live_bytes() != 0) { throw error{"a step left buffers alive"}; }
        if (tasks.optimized != steps) { throw error{"optimize was not called once a step"}; }

        // An evaluation uses the current weights, whatever its memory holds.
        lock.unlock();
        poison(rank.memory());
        rank.evaluate(tasks);
        const auto evaluated = std::pair{one.task.losses, other.task.losses};
        rank.step(tasks);
        if (evaluated != std::pair{one.task.losses, other.task.losses}) {
            throw error{"an evaluation has other losses than the step that follows"};
        }
    });
    return result;
}

/// Trains one backbone alone, without pipeline or executor.
template <class Model>
trained train_alone(int batch, int microbatches, std::uint64_t seed, int steps) {
    cascade_math math;
    unpipelined<Model, cascade_math> oracle{math};
    trained result;
    threads::run_ranks(1, {}, [&](threads::transport& transport) {
        plan sizes;
        sizes.microbatch_size = batch;
        sizes.microbatches = microbatches;
        auto whole = whole_model<Model, float>();
        backbone_part<Model> alone{sizes, seed, whole};
        for (int s = 1; s <= steps; ++s) {
            for (int l = 0; l != static_cast<int>(Model::part_count); ++l) {
                std::ranges::copy(whole.values_of(l), oracle.parameters_of_part(l).begin());
                std::ranges::copy(whole.frozen_values_of(l), oracle.frozen_parameters_of_part(l).begin());
            }
            if constexpr (Model::is_conditioned) {
                const auto values = whole.values_of(conditioning_block);
                oracle.conditioning_parameters.assign(values.begin(), values.end());
            }
            oracle.clear_gradients();
            for (int m = 0; m != microbatches; ++m) {
                const auto at = static_cast<std::size_t>(m);
                drawn_task<Model, float>& task = alone.task;
                auto tape = oracle.forward(batch, task.inputs[at], task.times[at], task.texts[at], task.known[at]);
                std::vector<float> gradient(oracle.output(tape).size());
                task.loss(m, oracle.output(tape).data(), gradient.data());
                oracle.backward(tape, std::move(gradient));
            }
            for (int l = 0; l != static_cast<int>(Model::part_count); ++l) {
                std::ranges::copy(oracle.gradients_of_part(l), whole.gradients_of(l).begin());
            }
            if constexpr (Model::is_conditioned) {
                std::copy(oracle.conditioning_gradients.begin(), oracle.conditioning_gradients.end(),
                          whole.gradients_of(conditioning_block).begin());
            }
            alone.step(transport, s);
        }
        result.losses = alone.losses;
        for (const auto& block : whole.blocks()) {
            const auto values = whole.values_of(block.layer);
            result.weights[block.layer] = {values.begin(), values.end()};
        }
    });
    return result;
}

/// Blank costs with random times, so that cuts and orders differ.
template <class Model>
[[nodiscard]] cost_table drawn_costs(int batch, std::mt19937& random) {
    cost_table costs = blank_costs(graph_of<Model>().view(), batch, sizeof(float));
    std::uniform_real_distribution<> time{1.0, 9.0};
    for (layer_cost& layer : costs.layers) {
        layer.forward_us = time(random);
        if (layer.forward_only()) { continue; }
        layer.backward_input_us = time(random);
        layer.backward_weight_us = time(random);
    }
    return costs;
}

struct cascade_tally {
    int runs{};
    int split{};
    std::map<int, int> devices{};
    std::map<recomputation, int> recomputed{};
};

template <class First, class Second>
void check_cascades(unsigned seed, int runs, cascade_tally& seen) {
    std::mt19937 random{seed};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int n = 0; n != runs; ++n) {
        CAPTURE(seed);
        CAPTURE(n);
        tune_candidate c;
        c.pipeline_degree = 2 + n % 3;
        c.microbatches = draw(1, 5);
        c.microbatch_size = draw(1, 3);
        c.split_backward = draw(0, 1) == 1;
        c.routing = static_cast<skip_routing>(draw(0, 1));
        c.recompute = drawn_recomputation(draw, static_cast<std::size_t>(4 * c.pipeline_degree));
        const cost_table a = drawn_costs<First>(c.microbatch_size, random);
        const cost_table b = drawn_costs<Second>(c.microbatch_size, random);
        candidate_options options;
        options.kept = adamw_memory(4);
        options.list.explored_runs = draw(0, 3);
        const planned made = plan_cascade(a, b, c, one_node(c.pipeline_degree, pulse::link{}), options);
        require_valid(made.plan, "plan");
        const step_model model{made.plan, made.costs};
        REQUIRE(check(made.plan, model, lower(made.plan, model)).violation == "");
        // With free links the simulated times equal the order's, except that a recomputation may fill a gap.
        const double ordered_us = made.plan.order.makespan_us();
        REQUIRE(made.plan.predicted.step_us <= ordered_us * (1 + 1e-12));
        if (c.recompute == recomputation::none) { REQUIRE(made.plan.predicted.step_us >= ordered_us * (1 - 1e-12)); }
        REQUIRE(made.plan.predicted.lower_bound_us <= made.plan.predicted.step_us * (1 + 1e-12));

        const int steps = 1 + n % 2;
        const std::uint64_t data = random();
        const cascade_run run = run_cascade<First, Second>(made.plan, made.costs, data, steps);
        REQUIRE(run.first == train_alone<First>(c.microbatch_size, c.microbatches, data, steps));
        REQUIRE(run.second == train_alone<Second>(c.microbatch_size, c.microbatches, data + 1, steps));
        REQUIRE(run.measured_bytes == run.planned_bytes);
        REQUIRE(run.planned_bytes == made.plan.predicted.peak_memory_bytes);
        REQUIRE(run.sent.skip == 0);
        REQUIRE(run.sent.boundary == made.plan.predicted.boundary_bytes * steps);
        ++seen.runs;
        ++seen.devices[c.pipeline_degree];
        ++seen.recomputed[c.recompute.kind];
        seen.split += c.split_backward ? 1 : 0;
    }
}

} // namespace

TEST_CASE("both backbones of a cascade train as each does alone, bit for bit, in the memory that was planned") {
    cascade_tally seen;
    check_cascades<toy_model<1, 18, wiring::nested, true>, toy_model<2, 18, wiring::crossing, false>>(
        1, drawn_cases(30), seen);
    check_cascades<toy_model<5, 12, wiring::none, true>, toy_model<3, 18, wiring::fan_out, true>>(2, drawn_cases(30),
                                                                                                  seen);
    check_cascades<toy_model<6, 17, wiring::nested, false>, toy_model<5, 12, wiring::none, true>>(3, drawn_cases(30),
                                                                                                  seen);
    check_cascades<toy_model<5, 12, wiring::none, false>, locked_toy<1, 18, wiring::nested, false, 5>>(
        4, drawn_cases(30), seen);
    CHECK(seen.runs == 4 * drawn_cases(30));
    CHECK(seen.split > drawn_cases(30));
    for (const int devices : {2, 3, 4}) { CHECK(seen.devices[devices] >= 4 * (drawn_cases(30) / 3)); }
    for (const auto kind :
         {recomputation::none, recomputation::skips, recomputation::stages, recomputation::selective}) {
        CHECK(seen.recomputed[kind] > drawn_cases(15));
    }
}

TEST_CASE("a cascade's executor refuses plans and costs that are not of both its backbones") {
    using first = toy_model<5, 12, wiring::none, true>;
    using second = toy_model<6, 17, wiring::nested, false>;
    std::mt19937 random{9};
    const cost_table a = drawn_costs<first>(1, random);
    const cost_table b = drawn_costs<second>(1, random);
    tune_candidate c;
    c.pipeline_degree = 1;
    const planned good = plan_cascade(a, b, c, one_node(1, pulse::link{}));
    const auto make = [](const plan& planned, const cost_table& costs) {
        threads::run_ranks(planned.pipeline_degree, {}, [&](threads::transport& transport) {
            cascade_math math;
            executor<cascade<first, second>, cascade_math> rank{math, transport, planned, costs};
        });
    };
    make(good.plan, good.costs);
    CHECK_THROWS_AS(make(good.plan, join_costs(b, a)), error);
    CHECK_THROWS_WITH_AS(make(good.plan, a), doctest::Contains("cascade: the costs must be of exactly two backbones"),
                         error);
    plan bare = good.plan;
    bare.further_chains.clear();
    CHECK_THROWS_WITH_AS(make(bare, good.costs), doctest::Contains("further_chains must have one entry per"), error);
}
