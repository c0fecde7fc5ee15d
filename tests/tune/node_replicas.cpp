#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>
#include <pulse/tune/candidate_plan.hpp>

#include "drawn_space.hpp"

using namespace pulse;
using namespace pulse::test;

namespace {

/// Step time of a plan on a cluster whose replicas exchange as given.
double step_with(const planned& made, const cluster& machine, replica_exchange how, int node_replicas) {
    plan p = made.plan;
    p.node_replicas = node_replicas;
    const step_model model{p, made.costs};
    simulation_options world =
        simulated_on(machine, {made.layout, p.pipeline_degree, p.data_degree}, how, p.node_replicas);
    world.kept = made.kept;
    return simulate(p, model, lower(p, model), world).step_us;
}

} // namespace

TEST_CASE("replicas of a node sum first where that is sooner, and no step is longer for it") {
    std::mt19937 random{91};
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    int first = 0;
    int sooner = 0;
    int possible = 0;
    for (int i = 0; i != 400; ++i) {
        const cost_table costs = draw_costs(random, draw(6, 12), static_cast<skip_pattern>(draw(0, 5)));
        cluster machine{.nodes = draw(1, 4), .devices_per_node = draw(1, 4) * 2};
        machine.inter_node = {.latency_us = 0.5 * draw(0, 9), .bandwidth_gb_per_s = 0.001 * draw(1, 100)};
        machine.intra_node = {.latency_us = 0.1 * draw(0, 5), .bandwidth_gb_per_s = 0.001 * draw(1, 300)};
        tune_candidate c{.kind = placement::sequential, .routing = skip_routing::relayed};
        do { c.pipeline_degree = draw(1, 4); } while (machine.devices() % c.pipeline_degree != 0);
        c.data_degree = machine.devices() / c.pipeline_degree;
        c.microbatches = draw(1, 4);
        c.layout = static_cast<rank_layout>(draw(0, 1));
        c.sharded_optimizer = draw(0, 1) == 1;
        candidate_options options{};
        options.kept.gradient_bytes = 4;
        options.exchange = static_cast<replica_exchange>(draw(0, 1));
        planned made{};
        try {
            made = plan_candidate(costs, c, machine, options);
        } catch (const infeasible_error&) { continue; }
        CAPTURE(i);
        const rank_grid grid{c.layout, c.pipeline_degree, c.data_degree};
        const std::vector<int> sizes = possible_node_replicas(machine, grid);
        const int chosen = made.plan.node_replicas;
        possible += sizes.empty() ? 0 : 1;
        CHECK((chosen == 1 || std::find(sizes.begin(), sizes.end(), chosen) != sizes.end()));
        CHECK(made.plan.has_even_groups());
        const double step_us = step_with(made, machine, options.exchange, chosen);
        if (c.pipeline_degree > 1) { CHECK(made.plan.predicted.step_us == step_us); }
        const double plain_us = step_with(made, machine, options.exchange, 1);
        CHECK(step_us <= plain_us * (1 + 1e-12));
        first += chosen > 1 ? 1 : 0;
        sooner += step_us < plain_us ? 1 : 0;
        // Memory and traffic are unchanged.
        plan plain = made.plan;
        plain.node_replicas = 1;
        CHECK(peak_bytes(planned{plain, costs, made.kept, made.layout}) == peak_bytes(made));
    }
    MESSAGE("of " << possible << " cases in several nodes " << first << " sum inside them first, " << sooner
                  << " are sooner for it");
    CHECK(first > 40);
    CHECK(sooner > 40);
    CHECK(possible > first);
}

TEST_CASE("a node of several replicas sends as many sums as a node of one") {
    // Four replicas in two nodes. Without node sums each node sends its two replicas' shares to two owners.
    const cluster machine{.nodes = 2,
                          .devices_per_node = 2,
                          .intra_node = {.latency_us = 0, .bandwidth_gb_per_s = 100},
                          .inter_node = {.latency_us = 0, .bandwidth_gb_per_s = 0.001}};
    cost_table costs{};
    costs.model = "one";
    costs.microbatch_size = 1;
    costs.layers.push_back({.name = "only", .forward_us = 1, .backward_input_us = 1, .parameter_bytes = 400});
    const planned made = plan_candidate(
        costs, {.pipeline_degree = 1, .data_degree = 4, .kind = placement::sequential, .split_backward = false},
        machine, {});
    CHECK(made.plan.node_replicas == 2);
    // There and back, 200 bytes per node at one byte per microsecond; inside a node 2 x 200 bytes at 100,000.
    CHECK(step_with(made, machine, replica_exchange::direct, 2) == doctest::Approx(2 + 400 + 0.004));
    CHECK(step_with(made, machine, replica_exchange::direct, 1) == doctest::Approx(2 + 800));
    CHECK(step_with(made, machine, replica_exchange::ring, 1) == doctest::Approx(2 + 600));
}
