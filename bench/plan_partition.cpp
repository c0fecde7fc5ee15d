#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>

#include <CLI/CLI.hpp>

#include <pulse/partition/skip_aware.hpp>

#include "plan_parts.hpp"

namespace pulse_bench {

namespace {

/// n random layers with a skip at nearly every one, as a U has them.
pulse::cost_table random_u(int n, unsigned seed) {
    std::mt19937 draw{seed};
    std::uniform_real_distribution<double> time{10.0, 100.0};
    pulse::cost_table costs{};
    for (int l = 0; l != n; ++l) {
        pulse::layer_cost layer{};
        layer.forward_us = time(draw);
        layer.backward_input_us = layer.forward_us;
        layer.backward_weight_us = layer.forward_us;
        layer.output_bytes = 1 << 20;
        costs.layers.push_back(layer);
    }
    for (int l = 0; 2 * l + 3 < n; ++l) { costs.skips.push_back({l, n - 1 - l, 1 << 20}); }
    return costs;
}

void measure() {
    std::printf("%8s %8s %12s\n", "layers", "devices", "ms");
    for (const int n : {100, 200, 500, 1000, 2000}) {
        const auto costs = random_u(n, 1);
        const int devices = n < 128 ? 8 : 64;
        const auto start = std::chrono::steady_clock::now();
        (void)pulse::skip_aware_partition(costs, devices, 1);
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
        std::printf("%8d %8d %12.2f\n", n, devices, took.count());
    }
}

} // namespace

void add_partition_part(CLI::App& app) {
    app.add_subcommand("partition", "growth of the partitioner's time with the number of layers")->callback(measure);
}

} // namespace pulse_bench
