#pragma once

#include <limits>

#include <pulse/core/error.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Throws input_error unless the table has a layer, every time is finite and not negative, no byte count is negative
/// and every skip goes forwards between two of its layers.
constexpr void check_costs(const cost_table& costs) {
    if (costs.layers.empty()) { throw input_error("costs: layers: there is none"); }
    const auto is_time = [](double us) { return us >= 0.0 && us <= std::numeric_limits<double>::max(); };
    for (const layer_cost& layer : costs.layers) {
        if (!is_time(layer.forward_us) || !is_time(layer.backward_input_us) || !is_time(layer.backward_weight_us)) {
            throw input_error("costs: layer " + layer.name.str() + ": a time is negative or not finite");
        }
        if (layer.parameter_bytes < 0 || layer.saved_bytes < 0 || layer.output_bytes < 0 || layer.deferred_bytes < 0 ||
            layer.workspace_bytes < 0) {
            throw input_error("costs: layer " + layer.name.str() + ": a byte count is negative");
        }
    }
    const auto layers = static_cast<int>(costs.layers.size());
    for (const skip_cost& edge : costs.skips) {
        if (edge.from < 0 || edge.from >= edge.to || edge.to >= layers) {
            throw input_error("costs: a skip must go forwards between two of the layers");
        }
        if (edge.bytes < 0) { throw input_error("costs: a skip has a negative byte count"); }
    }
    if (costs.conditioning_bytes < 0 || costs.input_bytes < 0 || costs.microbatch_size < 1) {
        throw input_error("costs: conditioning_bytes, input_bytes or microbatch_size is out of range");
    }
    if (costs.frozen_conditioning_bytes < 0 || costs.frozen_conditioning_bytes > costs.conditioning_bytes) {
        throw input_error("costs: frozen_conditioning_bytes is not from 0 to conditioning_bytes");
    }
}

} // namespace pulse
