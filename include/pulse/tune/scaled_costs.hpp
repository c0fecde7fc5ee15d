#pragma once

#include <cstdint>
#include <functional>

#include <pulse/core/error.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Costs for a microbatch size: analytic_costs of a graph, measurements, or scaled_costs of a profile.
using cost_source = std::function<cost_table(int)>;

/// Scales a measured cost table to another microbatch size: times and bytes of activations are proportional to it,
/// parameters stay.
///
/// An approximation for profiles, which have one size: small microbatches use a device less well than this says, so a
/// choice far from the measured size deserves a profile of its own. Bytes are rounded up. Throws input_error if a size
/// is less than 1.
[[nodiscard]] inline cost_table scaled_costs(cost_table costs, int microbatch_size) {
    if (microbatch_size < 1 || costs.microbatch_size < 1) {
        throw input_error("microbatch_size: it must be at least 1");
    }
    const std::int64_t to = microbatch_size;
    const std::int64_t from = costs.microbatch_size;
    const double factor = static_cast<double>(to) / static_cast<double>(from);
    const auto scale = [&](std::int64_t& bytes) { bytes = bytes / from * to + (bytes % from * to + from - 1) / from; };
    for (layer_cost& layer : costs.layers) {
        layer.forward_us *= factor;
        layer.backward_input_us *= factor;
        layer.backward_weight_us *= factor;
        scale(layer.saved_bytes);
        scale(layer.output_bytes);
        scale(layer.frozen_output_bytes);
        scale(layer.open_bytes);
        scale(layer.deferred_bytes);
        scale(layer.workspace_bytes);
    }
    for (skip_cost& edge : costs.skips) { scale(edge.bytes); }
    scale(costs.conditioning_bytes);
    scale(costs.frozen_conditioning_bytes);
    scale(costs.input_bytes);
    costs.microbatch_size = microbatch_size;
    return costs;
}

} // namespace pulse
