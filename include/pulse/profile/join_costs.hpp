#pragma once

#include <array>
#include <cstddef>

#include <pulse/core/error.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Joins the tables of two backbones that are trained together; the second's layers follow the first's. A cascade's
/// plan is lowered and simulated with the result. Throws input_error for an invalid table, for different microbatch
/// sizes and for frozen components, which a cascade cannot encode.
[[nodiscard]] constexpr cost_table join_costs(const cost_table& first, const cost_table& second) {
    for (const cost_table* costs : {&first, &second}) {
        check_costs(*costs);
        if (!costs->frozen.empty()) {
            throw input_error("cascade: " + costs->model.str() +
                              " has frozen components, which a cascade cannot encode");
        }
    }
    if (first.microbatch_size != second.microbatch_size) {
        throw input_error("cascade: the two cost tables must have the same microbatch size");
    }
    cost_table joined = first;
    const auto name = joined.model.view().size() + second.model.view().size() + 1;
    if (name < label::capacity) { joined.model = joined.model + "+" + second.model.view(); }
    const int layers = static_cast<int>(first.layers.size());
    joined.further_chains.push_back(
        {layers, second.conditioning_bytes, second.frozen_conditioning_bytes, second.input_bytes});
    for (const layer_cost& layer : second.layers) { joined.layers.push_back(layer); }
    for (skip_cost edge : second.skips) {
        edge.from += layers;
        edge.to += layers;
        joined.skips.push_back(edge);
    }
    return joined;
}

/// Splits a joined table; both parts keep the joined model name. Throws input_error unless it holds two backbones.
[[nodiscard]] constexpr std::array<cost_table, 2> split_costs(const cost_table& joined) {
    if (joined.further_chains.size() != 1) { throw input_error("cascade: the costs must be of exactly two backbones"); }
    const chain_costs chain = joined.further_chains.front();
    if (chain.first_layer < 1 || chain.first_layer >= static_cast<int>(joined.layers.size())) {
        throw input_error("cascade: first_layer of the second backbone is out of range");
    }
    std::array<cost_table, 2> parts{joined, joined};
    const auto at = joined.layers.begin() + chain.first_layer;
    parts[0].layers.assign(joined.layers.begin(), at);
    parts[1].layers.assign(at, joined.layers.end());
    for (cost_table& part : parts) {
        part.further_chains.clear();
        part.skips.clear();
    }
    for (skip_cost edge : joined.skips) {
        const bool behind = edge.from >= chain.first_layer;
        edge.from -= behind ? chain.first_layer : 0;
        edge.to -= behind ? chain.first_layer : 0;
        parts[behind ? 1 : 0].skips.push_back(edge);
    }
    parts[1].conditioning_bytes = chain.conditioning_bytes;
    parts[1].frozen_conditioning_bytes = chain.frozen_conditioning_bytes;
    parts[1].input_bytes = chain.input_bytes;
    return parts;
}

} // namespace pulse
