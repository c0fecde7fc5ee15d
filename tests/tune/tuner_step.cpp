#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/tuner.hpp>

using namespace pulse;

namespace {

/// Layers of 4, 5 and 6 us with 1000 x (l + 1) bytes of parameters each.
cost_table chain_of(int layers) {
    cost_table costs{};
    costs.model = "chain";
    costs.device = "none";
    costs.input_bytes = 64;
    for (int l = 0; l != layers; ++l) {
        layer_cost layer{};
        layer.name = label{"l"} + static_cast<unsigned>(l);
        layer.forward_us = 4;
        layer.backward_input_us = 5;
        layer.backward_weight_us = 6;
        layer.parameter_bytes = 1000 * (l + 1);
        layer.output_bytes = 640;
        costs.layers.push_back(layer);
    }
    return costs;
}

constexpr pulse::link inside{.latency_us = 0.5, .bandwidth_gb_per_s = 0.2};
constexpr pulse::link outside{.latency_us = 2.0, .bandwidth_gb_per_s = 0.05};

tune_options fixed(int pipeline, rank_layout layout) {
    tune_options o{};
    o.pipeline_degrees = {pipeline};
    o.placements = {placement::sequential};
    o.split_backwards = {false};
    o.recomputations = {recomputation::none};
    o.layouts = {layout};
    o.microbatch_sizes = {1};
    o.kept.state_bytes = 4;
    o.memory_gb_per_s = 0.4; // 400 bytes per microsecond
    return o;
}

/// Spelled out: D - 1 rounds of reduce-scatter and D - 1 of all-gather, each with a message of a D-th part.
double ring_by_rounds(double bytes, int replicas, double latency_us, double bytes_per_us) {
    double sum = 0;
    for (int round = 0; round != 2 * (replicas - 1); ++round) { sum += latency_us + bytes / replicas / bytes_per_us; }
    return sum;
}

} // namespace

TEST_CASE("plain data parallelism: the step is its microbatches, the reduction that nothing hides and the optimizer") {
    const cost_table costs = chain_of(1);
    for (const int devices : {1, 2, 4}) {
        const cluster machine{.name = "one",
                              .nodes = 1,
                              .devices_per_node = devices,
                              .memory_bytes = 0,
                              .intra_node = inside,
                              .inter_node = {}};
        tune_options o = fixed(1, rank_layout::pipeline_inside);
        o.global_batch = 3 * devices;
        const tuning made = tune([&](int) { return costs; }, machine, o);
        const double reduction = devices == 1 ? 0.0 : ring_by_rounds(1000, devices, 0.5, 200);
        // Values, gradients and one number of state: three reads and two writes of 1000 bytes.
        CHECK(made.best_row().step_us == doctest::Approx(3 * 15 + reduction + 5 * 1000 / 400.0));
        CHECK(made.best_row().gradient_bytes == (devices == 1 ? 0 : 2 * 1000 * (devices - 1) / devices));
        CHECK(made.plan.data_degree == devices);
        CHECK(made.plan.predicted.samples_per_s == doctest::Approx(1e6 * 3 * devices / made.best_row().step_us));

        cost_table measured = costs;
        measured.optimizer_gb_per_s = 0.1;
        const tuning slower = tune([&](int) { return measured; }, machine, o);
        CHECK(slower.best_row().step_us == doctest::Approx(3 * 15 + reduction + 5 * 1000 / 100.0));
    }
}

TEST_CASE("plain data parallelism reduces a layer's gradients while the layers below are still going backward") {
    cost_table costs = chain_of(2);
    costs.layers[0].parameter_bytes = 10'000'000;
    costs.layers[1].parameter_bytes = 30'000'000;
    for (layer_cost& l : costs.layers) { l.backward_input_us = l.backward_weight_us = 40'000; }
    const cluster machine{.name = "two",
                          .nodes = 1,
                          .devices_per_node = 2,
                          .memory_bytes = 0,
                          .intra_node = {.latency_us = 1, .bandwidth_gb_per_s = 1},
                          .inter_node = {}};
    tune_options o = fixed(1, rank_layout::pipeline_inside);
    o.global_batch = 2;
    o.memory_gb_per_s = 0;
    const tuning made = tune([&](int) { return costs; }, machine, o);
    // Backward of layer 1 ends at 8 + 80,000; its 30 MB take 30,000 and finish in time; those of layer 0 follow at
    // 160,008.
    const double below = 8 + 2 * 80'000.0;
    CHECK(made.best_row().step_us == doctest::Approx(below + ring_by_rounds(10e6, 2, 1, 1000)));

    // Slow links: the second reduction waits for the first.
    cluster slow = machine;
    slow.intra_node.bandwidth_gb_per_s = 0.1;
    const tuning late = tune([&](int) { return costs; }, slow, o);
    CHECK(late.best_row().step_us ==
          doctest::Approx(8 + 80'000 + ring_by_rounds(30e6, 2, 1, 100) + ring_by_rounds(10e6, 2, 1, 100)));
}

TEST_CASE("plain data parallelism: where backward passes are split, gradients are complete with their weight pass") {
    const cluster machine{
        .name = "two", .nodes = 1, .devices_per_node = 2, .memory_bytes = 0, .intra_node = inside, .inter_node = {}};
    for (const bool split : {false, true}) {
        const tune_candidate c{
            .data_degree = 2, .microbatches = 3, .kind = placement::sequential, .split_backward = split};
        CHECK(plan_candidate(chain_of(1), c, machine).plan.predicted.step_us ==
              doctest::Approx(3 * 15 + ring_by_rounds(1000, 2, 0.5, 200)));
    }
}

TEST_CASE("plain data parallelism: layers without parameters below the last bucket run while it is reduced") {
    cost_table costs = chain_of(4);
    costs.layers[0].parameter_bytes = 0;
    costs.layers[1].parameter_bytes = 30'000'000;
    costs.layers[2].parameter_bytes = 0;
    costs.layers[3].parameter_bytes = 40'000'000;
    for (layer_cost& l : costs.layers) { l.backward_input_us = l.backward_weight_us = 10'000; }
    const auto buckets = gradient_buckets(costs, sequential_partition(costs, 1), false);
    REQUIRE(buckets.size() == 2);
    CHECK(buckets[0].bytes == 40'000'000);
    CHECK(buckets[0].before_end_us == doctest::Approx(60'000));
    CHECK(buckets[1].bytes == 30'000'000);
    CHECK(buckets[1].before_end_us == doctest::Approx(20'000));
    const auto split = gradient_buckets(costs, sequential_partition(costs, 2), true);
    REQUIRE(split.size() == 2);
    for (const gradient_bucket& b : split) { CHECK(b.before_end_us == 0); }

    for (const double rate : {0.1, 1.0, 10.0}) {
        CAPTURE(rate);
        const cluster machine{.name = "two",
                              .nodes = 1,
                              .devices_per_node = 2,
                              .memory_bytes = 0,
                              .intra_node = {.latency_us = 1, .bandwidth_gb_per_s = rate},
                              .inter_node = {}};
        tune_options o = fixed(1, rank_layout::pipeline_inside);
        o.global_batch = 2;
        o.memory_gb_per_s = 0;
        const tuning made = tune([&](int) { return costs; }, machine, o);
        const double top = 4 * 4 + 20'000 + ring_by_rounds(40e6, 2, 1, 1000 * rate);
        const double low = std::max(top, 4 * 4 + 60'000.0) + ring_by_rounds(30e6, 2, 1, 1000 * rate);
        CHECK(made.best_row().step_us == doctest::Approx(std::max(low, 4 * 4 + 80'000.0)));
        CHECK(made.best_row().bound_us <= made.best_row().step_us * (1 + 1e-9));
        CHECK(made.best_row().bound_us >= 4 * 4 + 80'000.0);
    }
}

TEST_CASE("two stages, two replicas: the deeper stage reduces while the other goes backward") {
    const cost_table costs = chain_of(2);
    const cluster machine{
        .name = "four", .nodes = 1, .devices_per_node = 4, .memory_bytes = 0, .intra_node = inside, .inter_node = {}};
    tune_options o = fixed(2, rank_layout::pipeline_inside);
    o.global_batch = 2;
    const tuning made = tune([&](int) { return costs; }, machine, o);
    const double lag = 0.5 + 640 / 200.0;
    const double deep = 4 + lag + 4 + 11; // end of B(1)
    const double first = deep + lag + 11; // end of B(0)
    const double end0 = first + ring_by_rounds(1000, 2, 0.5, 200) + 5 * 1000 / 400.0;
    const double end1 = deep + ring_by_rounds(2000, 2, 0.5, 200) + 5 * 2000 / 400.0;
    CHECK(made.best_row().step_us == doctest::Approx(std::max(end0, end1)));
    CHECK(made.best_row().boundary_bytes == 2 * 640);
    CHECK(made.best_row().gradient_bytes == 3000);
    CHECK(made.best_row().bubble_ratio ==
          doctest::Approx(1 - (2 * 15 + 5 * 3000 / 400.0) / (2 * made.best_row().step_us)));
}

TEST_CASE("sharded state: shares alone are reduced, a D-th part of the optimizer is run, then the new weights are "
          "exchanged") {
    const cost_table costs = chain_of(2);
    const cluster machine{
        .name = "eight", .nodes = 1, .devices_per_node = 8, .memory_bytes = 0, .intra_node = inside, .inter_node = {}};
    for (const int pipeline : {1, 2}) {
        for (const int replicas : {2, 4}) {
            tune_options o = fixed(pipeline, rank_layout::pipeline_inside);
            o.devices = pipeline * replicas;
            o.global_batch = replicas;
            o.sharded_optimizers = {true};
            const tuning made = tune([&](int) { return costs; }, machine, o);
            REQUIRE(made.rows.size() == (pipeline == 1 ? 1 : 2)); // no skip to relay
            const auto way = [&](double bytes) { return ring_by_rounds(bytes, replicas, 0.5, 200) / 2; };
            const auto rest = [&](double bytes) { return 2 * way(bytes) + 5 * bytes / replicas / 400.0; };
            double end = 2 * 15 + rest(3000);
            if (pipeline == 2) {
                const double lag = 0.5 + 640 / 200.0;
                const double deep = 4 + lag + 4 + 11;
                end = std::max(deep + rest(2000), deep + lag + 11 + rest(1000));
            }
            CHECK(made.best_row().step_us == doctest::Approx(end));
            CHECK(made.best_row().bound_us <= made.best_row().step_us * (1 + 1e-9));
            CHECK(made.best_row().gradient_bytes == 2 * 3000 * (replicas - 1) / replicas);
        }
    }
}

TEST_CASE("16-bit weights with 32-bit gradients: twice the bytes there and back, new weights as they are") {
    const cost_table costs = chain_of(1);
    const cluster machine{
        .name = "two", .nodes = 1, .devices_per_node = 2, .memory_bytes = 0, .intra_node = inside, .inter_node = {}};
    for (const bool sharded : {false, true}) {
        tune_options o = fixed(1, rank_layout::pipeline_inside);
        o.global_batch = 2;
        o.kept = {.scalar_bytes = 2, .gradient_bytes = 4, .state_bytes = 4};
        o.sharded_optimizers = {sharded};
        const tuning made = tune([&](int) { return costs; }, machine, o);
        const double back = sharded ? 1000.0 : 2000.0;
        // All 10 bytes of 500 weights are read and 6 are written, at 400 bytes per microsecond.
        const double optimizer = 16 * (sharded ? 250 : 500) / 400.0;
        CHECK(made.best_row().step_us ==
              doctest::Approx(15 + (0.5 + 1000 / 200.0) + (0.5 + back / 2 / 200.0) + optimizer));
        CHECK(static_cast<double>(made.best_row().gradient_bytes) == 1000 + back / 2);
    }
}

TEST_CASE("two nodes: pipelines inside them share the outer link for reductions, replicas inside them for messages") {
    const cost_table costs = chain_of(2);
    const cluster machine{.name = "2x2",
                          .nodes = 2,
                          .devices_per_node = 2,
                          .memory_bytes = 0,
                          .intra_node = inside,
                          .inter_node = outside};
    tune_options o = fixed(2, rank_layout::pipeline_inside);
    o.global_batch = 2;
    {
        const tuning made = tune([&](int) { return costs; }, machine, o);
        const double lag = 0.5 + 640 / 200.0;
        const double deep = 4 + lag + 4 + 11;
        const double first = deep + lag + 11;
        // Both reductions leave the node, and their messages take turns: stage 1's share; stage 0's share, which is
        // ready once the former has left; the sum of stage 1; the sum of stage 0. A message leaves 2 us before it
        // arrives.
        const double share1_left = deep + 1000 / 50.0;
        REQUIRE(first < share1_left);
        const double share0_left = share1_left + 500 / 50.0;
        const double sum1_left = share0_left + 1000 / 50.0;
        REQUIRE(share0_left + 2.0 < sum1_left);
        const double free1 = sum1_left + 2.0;
        const double free0 = sum1_left + 500 / 50.0 + 2.0;
        CHECK(made.best_row().step_us == doctest::Approx(std::max(free0 + 5 * 1000 / 400.0, free1 + 5 * 2000 / 400.0)));
    }
    o.layouts = {rank_layout::replicas_inside};
    {
        const tuning made = tune([&](int) { return costs; }, machine, o);
        const double lag = 2.0 + 640 / 25.0; // both replicas send at once: half of 50 bytes per microsecond
        const double deep = 4 + lag + 4 + 11;
        const double first = deep + lag + 11;
        const double end0 = first + ring_by_rounds(1000, 2, 0.5, 200) + 5 * 1000 / 400.0;
        const double end1 = deep + ring_by_rounds(2000, 2, 0.5, 200) + 5 * 2000 / 400.0;
        CHECK(made.best_row().step_us == doctest::Approx(std::max(end0, end1)));
    }
    // Left free, the tuner picks the faster layout and reports it.
    o.layouts = {rank_layout::pipeline_inside, rank_layout::replicas_inside};
    const tuning both = tune([&](int) { return costs; }, machine, o);
    double least = both.rows[0].step_us;
    for (const tune_row& row : both.rows) {
        if (row.evaluated()) { least = std::min(least, row.step_us); }
    }
    CHECK(both.rows.size() == 4);
    CHECK(both.count(tune_verdict::same) == 2); // no skip to relay
    CHECK(both.best_row().step_us == least);
}

TEST_CASE("ranks of a grid are a permutation, and links are those between the ranks' nodes") {
    const cluster machine{.name = "3x4",
                          .nodes = 3,
                          .devices_per_node = 4,
                          .memory_bytes = 0,
                          .intra_node = inside,
                          .inter_node = outside};
    for (const rank_layout layout : {rank_layout::pipeline_inside, rank_layout::replicas_inside}) {
        for (const int p : {1, 2, 3, 4, 6, 12}) {
            const rank_grid grid{layout, p, 12 / p};
            std::vector<char> seen(12, 0);
            for (int a = 0; a != p; ++a) {
                for (int r = 0; r != grid.data; ++r) { seen[static_cast<std::size_t>(grid.rank_of(a, r))] = 1; }
            }
            CHECK(std::count(seen.begin(), seen.end(), 1) == 12);
            const auto links = pipeline_links(machine, grid);
            REQUIRE(links.size() == static_cast<std::size_t>(p * p));
            for (int a = 0; a != p; ++a) {
                for (int b = 0; b != p; ++b) {
                    const pulse::link& line = links[static_cast<std::size_t>(a * p + b)];
                    bool leaves = false;
                    for (int r = 0; r != grid.data; ++r) {
                        leaves = leaves || machine.node_of(grid.rank_of(a, r)) != machine.node_of(grid.rank_of(b, r));
                    }
                    if (a == b) {
                        CHECK(line == pulse::link{});
                    } else if (leaves) {
                        CHECK(line.latency_us == outside.latency_us);
                        CHECK(line.bandwidth_gb_per_s <= outside.bandwidth_gb_per_s);
                    } else {
                        CHECK(line == inside);
                    }
                }
            }
        }
    }
}

TEST_CASE("scaled costs: times and activations in proportion, parameters as they are, sizes rounded up") {
    std::mt19937 random{5100};
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    for (int i = 0; i != 50; ++i) {
        cost_table costs = chain_of(draw(1, 5));
        costs.microbatch_size = draw(1, 6);
        costs.conditioning_bytes = draw(0, 100);
        for (layer_cost& l : costs.layers) {
            l.saved_bytes = draw(0, 1000);
            l.workspace_bytes = draw(0, 1000);
            l.deferred_bytes = draw(0, 1000);
        }
        if (costs.layers.size() > 1) { costs.skips.push_back({0, 1, draw(0, 1000)}); }
        const int size = draw(1, 12);
        const cost_table scaled = scaled_costs(costs, size);
        CHECK(scaled.microbatch_size == size);
        CHECK(scaled_costs(costs, costs.microbatch_size) == costs);
        const double factor = static_cast<double>(size) / costs.microbatch_size;
        const auto near = [&](std::int64_t from, std::int64_t to) {
            const double exact = static_cast<double>(from) * factor;
            CHECK(static_cast<double>(to) >= exact - 1e-6);
            CHECK(static_cast<double>(to) < exact + 1);
        };
        near(costs.conditioning_bytes, scaled.conditioning_bytes);
        near(costs.input_bytes, scaled.input_bytes);
        for (std::size_t l = 0; l != costs.layers.size(); ++l) {
            CHECK(scaled.layers[l].forward_us == doctest::Approx(costs.layers[l].forward_us * factor));
            CHECK(scaled.layers[l].load_us() == doctest::Approx(costs.layers[l].load_us() * factor));
            CHECK(scaled.layers[l].parameter_bytes == costs.layers[l].parameter_bytes);
            near(costs.layers[l].saved_bytes, scaled.layers[l].saved_bytes);
            near(costs.layers[l].output_bytes, scaled.layers[l].output_bytes);
            near(costs.layers[l].deferred_bytes, scaled.layers[l].deferred_bytes);
            near(costs.layers[l].workspace_bytes, scaled.layers[l].workspace_bytes);
        }
        for (std::size_t e = 0; e != costs.skips.size(); ++e) { near(costs.skips[e].bytes, scaled.skips[e].bytes); }
    }
    CHECK_THROWS_AS(static_cast<void>(scaled_costs(chain_of(1), 0)), input_error);
}
