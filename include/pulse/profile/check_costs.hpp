#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse {

namespace detail {

/// Upper limit of every byte count in a cost table, one tebibyte, so that sums over a step do not overflow.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 40;

[[nodiscard]] constexpr bool are_bytes(std::initializer_list<std::int64_t> counts) noexcept {
    return std::all_of(counts.begin(), counts.end(), [](std::int64_t n) { return n >= 0 && n <= most_bytes; });
}

/// Throws infeasible_error if a microbatch of several samples takes more bytes than a cost table can count, because a
/// smaller one may take fewer.
constexpr void check_microbatch(const cost_table& costs) {
    if (costs.microbatch_size < 2) { return; }
    const auto fits = [](std::initializer_list<std::int64_t> counts) { return std::max(counts) <= most_bytes; };
    const auto fail = [&](const std::string& where) {
        throw infeasible_error("a microbatch of " + std::to_string(costs.microbatch_size) +
                               " samples takes more than 2^40 bytes in " + where);
    };
    for (const layer_cost& layer : costs.layers) {
        if (!fits({layer.saved_bytes, layer.output_bytes, layer.deferred_bytes, layer.workspace_bytes,
                   layer.frozen_output_bytes, layer.open_bytes})) {
            fail("layer " + layer.name.str());
        }
    }
    for (const skip_cost& edge : costs.skips) {
        if (!fits({edge.bytes})) { fail("a skip"); }
    }
    if (!fits({costs.conditioning_bytes, costs.input_bytes})) { fail("its conditioning or input"); }
}

} // namespace detail

/// Throws input_error naming the component and the field unless every component has layers, a unique name, a chunk of
/// at least 1, finite times and bytes of 0 to 2^40.
constexpr void check_frozen(std::span<const frozen_component> components) {
    for (std::size_t c = 0; c != components.size(); ++c) {
        const frozen_component& one = components[c];
        const auto fail = [&](const std::string& what) {
            throw input_error("costs: frozen " + (one.name.empty() ? std::to_string(c) : one.name.str()) + ": " + what);
        };
        if (one.name.empty()) { fail("name: must not be empty"); }
        for (std::size_t other = 0; other != c; ++other) {
            if (components[other].name == one.name) { fail("name: is the name of another component"); }
        }
        if (one.max_chunk < 1) { fail("max_chunk: must be at least 1, not " + std::to_string(one.max_chunk)); }
        if (!detail::are_bytes({one.input_bytes, one.result_bytes})) {
            fail("input_bytes and result_bytes: must be from 0 to 2^40");
        }
        if (one.layers.empty()) { fail("layers: must not be empty"); }
        for (const frozen_layer& layer : one.layers) {
            const auto is_time = [](double us) { return us >= 0.0 && us <= std::numeric_limits<double>::max(); };
            if (!is_time(layer.call_us) || !is_time(layer.sample_us)) {
                fail("layer " + layer.name.str() + ": a time is negative or not finite");
            }
            if (!detail::are_bytes({layer.parameter_bytes, layer.output_bytes, layer.live_bytes})) {
                fail("layer " + layer.name.str() + ": a byte count must be from 0 to 2^40");
            }
        }
    }
}

/// Throws input_error unless the table has a layer and holds a single backbone, every time is finite and not negative,
/// every byte count is from 0 to 2^40, every skip goes forwards between two of its layers, and its frozen components
/// are valid (check_frozen).
constexpr void check_costs(const cost_table& costs) {
    if (costs.layers.empty()) { throw input_error("costs: layers: must not be empty"); }
    if (!costs.further_chains.empty()) {
        throw input_error(
            "costs: further_chains: must be empty; split a table of several backbones first (split_costs)");
    }
    const auto is_time = [](double us) { return us >= 0.0 && us <= std::numeric_limits<double>::max(); };
    for (const layer_cost& layer : costs.layers) {
        if (!is_time(layer.forward_us) || !is_time(layer.backward_input_us) || !is_time(layer.backward_weight_us)) {
            throw input_error("costs: layer " + layer.name.str() + ": a time is negative or not finite");
        }
        if (!detail::are_bytes({layer.parameter_bytes, layer.saved_bytes, layer.output_bytes, layer.deferred_bytes,
                                layer.workspace_bytes, layer.frozen_parameter_bytes, layer.frozen_output_bytes,
                                layer.open_bytes, layer.factored_elements})) {
            throw input_error("costs: layer " + layer.name.str() + ": a byte count must be from 0 to 2^40");
        }
        if (layer.frozen_output_bytes > layer.output_bytes) {
            throw input_error("costs: layer " + layer.name.str() + ": frozen_output_bytes is more than output_bytes");
        }
        if (layer.forward_only() && (layer.backward_input_us > 0 || layer.backward_weight_us > 0)) {
            throw input_error("costs: layer " + layer.name.str() +
                              ": its output has no gradient, so backward_input_us and backward_weight_us must be 0");
        }
    }
    if (!is_time(costs.optimizer_gb_per_s)) {
        throw input_error("costs: optimizer_gb_per_s is negative or not finite");
    }
    const auto layers = static_cast<int>(costs.layers.size());
    for (const skip_cost& edge : costs.skips) {
        if (edge.from < 0 || edge.from >= edge.to || edge.to >= layers) {
            throw input_error("costs: a skip must go forwards between two of the layers");
        }
        if (costs.layers[static_cast<std::size_t>(edge.from)].open_bytes != 0) {
            throw input_error("costs: a skip must not begin at layer " +
                              costs.layers[static_cast<std::size_t>(edge.from)].name.str() +
                              ", which leaves a residual open");
        }
        if (!detail::are_bytes({edge.bytes})) {
            throw input_error("costs: the byte count of a skip must be from 0 to 2^40");
        }
    }
    if (!detail::are_bytes({costs.conditioning_bytes})) {
        throw input_error("costs: conditioning_bytes must be from 0 to 2^40");
    }
    if (!detail::are_bytes({costs.input_bytes})) { throw input_error("costs: input_bytes must be from 0 to 2^40"); }
    if (costs.microbatch_size < 1) { throw input_error("costs: microbatch_size must be at least 1"); }
    if (costs.frozen_conditioning_bytes < 0 || costs.frozen_conditioning_bytes > costs.conditioning_bytes) {
        throw input_error("costs: frozen_conditioning_bytes must be from 0 to conditioning_bytes");
    }
    check_frozen(costs.frozen);
}

} // namespace pulse
