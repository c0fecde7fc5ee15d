#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Throws input_error, naming the field, unless every byte count of the table on which a step's memory depends is
/// what the model needs, as in blank_costs: elements x microbatch_size x scalar_bytes, and its statistics. Times and
/// parameter bytes are not checked.
///
/// Too small a number would let a layer write past its tensor; too large a one would make a plan's peak memory wrong.
constexpr void require_fit(const graph_view& graph, const cost_table& costs, int microbatch_size, int scalar_bytes) {
    const auto require = [](std::int64_t given, std::int64_t needed, const auto& field) {
        if (given == needed) { return; }
        throw input_error{"pulse: costs: " + field() + " is " + std::to_string(given) + ", but the model needs " +
                          std::to_string(needed)};
    };
    const auto named = [](const char* name) { return [name] { return std::string{name}; }; };
    const auto entry = [](const char* list, std::size_t i, const char* name) {
        return [=] { return std::string{list} + '[' + std::to_string(i) + "]." + name; };
    };
    if (microbatch_size < 1) {
        throw input_error{"pulse: plan: microbatch_size must be at least 1, not " + std::to_string(microbatch_size)};
    }
    if (costs.microbatch_size != microbatch_size) {
        throw input_error{"pulse: costs: microbatch_size is " + std::to_string(costs.microbatch_size) +
                          ", but the plan's is " + std::to_string(microbatch_size)};
    }
    const std::int64_t scale = std::int64_t{microbatch_size} * scalar_bytes;
    require(std::ssize(costs.layers), std::ssize(graph.layers), named("the number of layers"));
    require(std::ssize(costs.skips), std::ssize(graph.skips), named("the number of skips"));
    require(costs.input_bytes, graph.layers.front().input_elements * scale, named("input_bytes"));
    require(costs.conditioning_bytes, graph.conditioning_elements * scale, named("conditioning_bytes"));
    require(costs.frozen_conditioning_bytes, graph.frozen_conditioning_elements * scale,
            named("frozen_conditioning_bytes"));
    for (std::size_t l = 0; l != graph.layers.size(); ++l) {
        const layer_cost& has = costs.layers[l];
        const layer_node& needs = graph.layers[l];
        require(has.saved_bytes, needs.saved_bytes(microbatch_size, scalar_bytes), entry("layers", l, "saved_bytes"));
        require(has.output_bytes, needs.output_elements * scale, entry("layers", l, "output_bytes"));
        require(has.deferred_bytes, needs.deferred_elements * scale, entry("layers", l, "deferred_bytes"));
        require(has.workspace_bytes, needs.workspace_elements * scale, entry("layers", l, "workspace_bytes"));
        require(has.frozen_output_bytes, needs.frozen_output_elements * scale,
                entry("layers", l, "frozen_output_bytes"));
        if (has.factored_elements != 0) { // costs may omit it unless moments are factored: check_moments
            require(has.factored_elements, needs.factored_elements, entry("layers", l, "factored_elements"));
        }
        require(has.open_bytes, needs.open_elements * scale, entry("layers", l, "open_bytes"));
    }
    for (std::size_t e = 0; e != graph.skips.size(); ++e) {
        require(costs.skips[e].from, graph.skips[e].from, entry("skips", e, "from"));
        require(costs.skips[e].to, graph.skips[e].to, entry("skips", e, "to"));
        require(costs.skips[e].bytes, graph.skips[e].elements * scale, entry("skips", e, "bytes"));
    }
}

} // namespace pulse
