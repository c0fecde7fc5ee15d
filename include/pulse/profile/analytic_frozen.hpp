#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse {

/// A frozen network as a value; elements are per sample.
struct frozen_graph {
    label name{};
    frozen_use feeds{};
    std::span<const layer_node> layers{};
    std::int64_t result_elements{};
    /// Maximum number of samples per call.
    int max_chunk{1};
    /// The first layer reads facts, which are accumulators: max(4, scalar_bytes) bytes each.
    bool reads_facts{false};
};

/// Costs of a frozen network on a device that need not be at hand: the roofline of analytic_costs, forward only.
///
/// With rates = efficiency x peak, a sample takes max(FLOPs / FLOP rate, bytes moved / memory rate), where input,
/// output and statistics move once. Each call adds the time to read the weights, except for layers without FLOPs: an
/// embedding reads no more of its table than it writes. The sum is an upper bound of the whole call's roofline, which
/// is not linear in the number of samples. Throws input_error when the network has no layer, max_chunk is not positive,
/// scalar_bytes is not 2, 4 or 8, or the device states no rate for them.
[[nodiscard]] constexpr frozen_component analytic_frozen(const frozen_graph& graph, const device& on,
                                                         int scalar_bytes) {
    if (graph.layers.empty()) { throw input_error("frozen " + graph.name.str() + ": it has no layers"); }
    if (graph.max_chunk < 1) { throw input_error("frozen " + graph.name.str() + ": max_chunk must be at least 1"); }
    const double flops_per_us = on.efficiency * on.peak_flops_per_s(scalar_bytes) * 1e-6;
    const double bytes_per_us = on.efficiency * on.memory_gb_per_s * 1e3;
    if (!(flops_per_us > 0.0) || !(bytes_per_us > 0.0)) {
        throw input_error("device: it has no rate for scalars of this size");
    }
    frozen_component out{graph.name,
                         graph.feeds,
                         graph.layers.front().input_elements *
                             (graph.reads_facts && scalar_bytes < 4 ? 4 : scalar_bytes),
                         graph.result_elements * scalar_bytes,
                         graph.max_chunk,
                         {}};
    out.layers.reserve(graph.layers.size());
    for (const layer_node& node : graph.layers) {
        const std::int64_t moved =
            (node.input_elements + node.output_elements) * scalar_bytes + node.saved_bytes(1, scalar_bytes);
        const double compute_us = node.forward_flops / flops_per_us;
        const double memory_us = static_cast<double>(moved) / bytes_per_us;
        const std::int64_t weights = node.parameter_elements * scalar_bytes;
        out.layers.push_back({node.name, node.forward_flops > 0 ? static_cast<double>(weights) / bytes_per_us : 0.0,
                              compute_us > memory_us ? compute_us : memory_us, weights,
                              node.output_elements * scalar_bytes, moved + node.workspace_elements * scalar_bytes});
    }
    return out;
}

} // namespace pulse
