#pragma once

#include <cstddef>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR traffic traffic_of(const partition& cut, const cost_table& costs, skip_routing routing) {
    traffic sum{};
    std::vector<int> changes(cut.stages.size(), 0); // device changes on the way from stage 0 to each stage
    for (std::size_t s = 1; s < cut.stages.size(); ++s) {
        changes[s] = changes[s - 1];
        const int first_layer = cut.stages[s].first_layer;
        if (costs.chain_of(first_layer).first_layer == first_layer) { continue; } // another backbone's
        if (cut.stages[s - 1].device != cut.stages[s].device) {
            sum.boundary_forward += boundary_bytes(costs, cut.stages[s - 1].last_layer);
            sum.boundary_backward += boundary_gradient_bytes(costs, cut.stages[s - 1].last_layer);
            ++changes[s];
        }
    }
    for (const skip_cost& edge : costs.skips) {
        const auto from = static_cast<std::size_t>(stage_of(cut.stages, edge.from));
        const auto to = static_cast<std::size_t>(stage_of(cut.stages, edge.to));
        if (cut.stages[from].device == cut.stages[to].device) { continue; }
        const int hops = routing == skip_routing::direct ? 1 : changes[to] - changes[from];
        sum.skip_forward += edge.bytes * hops;
        sum.skip_backward += costs.gradient_bytes(edge) * hops;
    }
    return sum;
}

} // namespace pulse
