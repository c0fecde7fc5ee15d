#pragma once

#include <random>

#include <partition/random_table.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuner.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse::test {

/// The inputs of a tuner search.
struct drawn_space {
    cost_table costs{}; ///< for microbatches of one sample
    cluster machine{};
    tune_options options{};

    [[nodiscard]] tuning run() const {
        return tune([this](int size) { return scaled_costs(costs, size); }, machine, options);
    }
};

[[nodiscard]] inline cost_table draw_costs(std::mt19937& random, int layers, skip_pattern pattern) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    cost_table costs = random_table(random, layers, pattern);
    costs.microbatch_size = 1;
    costs.input_bytes = draw(1, 20) * 8;
    for (layer_cost& l : costs.layers) {
        l.saved_bytes = draw(0, 9) * 8;
        l.deferred_bytes = draw(0, 9) * 8;
        l.workspace_bytes = draw(0, 9) * 8;
        l.output_bytes = draw(1, 20) * 8;
        l.parameter_bytes = draw(0, 5) == 0 ? 0 : draw(1, 200) * 8;
    }
    for (skip_cost& e : costs.skips) { e.bytes = costs.layers[static_cast<std::size_t>(e.from)].output_bytes; }
    return costs;
}

/// On up to six devices.
[[nodiscard]] inline drawn_space draw_space(std::mt19937& random) {
    const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>{low, high}(random); };
    drawn_space s;
    s.costs = draw_costs(random, draw(2, 12), static_cast<skip_pattern>(draw(0, 5)));
    s.machine.nodes = draw(1, 2);
    s.machine.devices_per_node = draw(1, 3);
    s.machine.intra_node = {.latency_us = 0.1 * draw(0, 5), .bandwidth_gb_per_s = 0.001 * draw(0, 300)};
    s.machine.inter_node = {.latency_us = 0.5 * draw(0, 9), .bandwidth_gb_per_s = 0.001 * draw(1, 100)};
    s.options.global_batch = s.machine.devices() * draw(1, 4);
    s.options.kept.state_bytes = 4 * draw(0, 3);
    s.options.memory_gb_per_s = 0.01 * draw(0, 20);
    if (draw(0, 2) == 0) { s.options.waves = {1}; }
    if (draw(0, 2) == 0) { s.options.chunks = {2}; }
    if (draw(0, 2) == 0) { s.options.slacks = {0.0, 0.3}; }
    if (draw(0, 2) == 0) { s.options.sharded_optimizers = {false, true}; }
    if (draw(0, 1) == 0) { s.options.exchange = replica_exchange::ring; }
    if (draw(0, 3) == 0) {
        s.options.methods = {schedule_method::gpipe, schedule_method::one_f_one_b, schedule_method::list};
    }
    return s;
}

} // namespace pulse::test
