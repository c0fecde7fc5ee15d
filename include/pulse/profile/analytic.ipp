#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/analytic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR cost_table blank_costs(const graph_view& graph, int microbatch_size, int scalar_bytes) {
    if (graph.layers.empty()) { throw input_error("graph: it has no layers"); }
    if (microbatch_size < 1) { throw input_error("microbatch_size: it must be at least 1"); }
    if (scalar_bytes != 2 && scalar_bytes != 4 && scalar_bytes != 8) {
        throw input_error("scalar_bytes: it must be 2, 4 or 8");
    }
    const std::int64_t per_sample = std::int64_t{microbatch_size} * scalar_bytes;

    cost_table table{};
    table.model = graph.model;
    table.microbatch_size = microbatch_size;
    table.conditioning_bytes = graph.conditioning_elements * per_sample;
    table.frozen_conditioning_bytes = graph.frozen_conditioning_elements * per_sample;
    table.input_bytes = graph.layers.front().input_elements * per_sample;
    table.layers.reserve(graph.layers.size());
    for (const layer_node& node : graph.layers) {
        layer_cost cost{};
        cost.name = node.name;
        cost.parameter_bytes = node.parameter_elements * scalar_bytes;
        cost.saved_bytes = node.saved_bytes(microbatch_size, scalar_bytes);
        cost.output_bytes = node.output_elements * per_sample;
        cost.deferred_bytes = node.deferred_elements * per_sample;
        cost.workspace_bytes = node.workspace_elements * per_sample;
        cost.frozen_parameter_bytes = node.frozen_parameter_elements * scalar_bytes;
        cost.frozen_output_bytes = node.frozen_output_elements * per_sample;
        cost.open_bytes = node.open_elements * per_sample;
        cost.factored_elements = node.factored_elements;
        table.layers.push_back(cost);
    }
    const int layers = static_cast<int>(graph.layers.size());
    table.skips.reserve(graph.skips.size());
    for (const skip_link& edge : graph.skips) {
        if (edge.from < 0 || edge.from >= edge.to || edge.to >= layers) {
            throw input_error("graph: a skip must go forwards between two of its layers");
        }
        table.skips.push_back({edge.from, edge.to, edge.elements * per_sample});
    }
    return table;
}

PULSE_CONSTEXPR cost_table analytic_costs(const graph_view& graph, const device& on, int microbatch_size,
                                          int scalar_bytes) {
    cost_table table = blank_costs(graph, microbatch_size, scalar_bytes);
    table.device = on.name;
    const double flops_per_us = on.efficiency * on.peak_flops_per_s(scalar_bytes) * 1e-6;
    const double bytes_per_us = on.efficiency * on.memory_gb_per_s * 1e3;
    if (!(flops_per_us > 0.0) || !(bytes_per_us > 0.0)) {
        throw input_error("device: it has no rate for scalars of this size");
    }
    for (std::size_t l = 0; l != graph.layers.size(); ++l) {
        const layer_node& node = graph.layers[l];
        layer_cost& cost = table.layers[l];
        std::int64_t moved = cost.output_bytes + cost.saved_bytes + cost.parameter_bytes + cost.frozen_parameter_bytes +
                             node.input_elements * microbatch_size * scalar_bytes;
        for (const skip_cost& edge : table.skips) {
            if (edge.to == static_cast<int>(l)) { moved += edge.bytes; }
        }
        const double compute_us = node.forward_flops * microbatch_size / flops_per_us;
        const double memory_us = static_cast<double>(moved) / bytes_per_us;
        const auto pass_us = [memory_us](double busy_us) { return busy_us > memory_us ? busy_us : memory_us; };
        const bool trains = node.parameter_elements > 0;
        cost.forward_us = pass_us(compute_us);
        if (cost.forward_only()) { continue; }
        const double us_per_flop = microbatch_size / flops_per_us;
        const double back_us = compute_us - node.forward_only_flops * us_per_flop;
        const bool weighs = trains || node.frozen_parameter_elements > 0;
        cost.backward_input_us = pass_us(weighs ? back_us : 2.0 * back_us);
        cost.backward_weight_us = trains ? pass_us(back_us - node.frozen_flops * us_per_flop) : 0.0;
    }
    return table;
}

} // namespace pulse
