#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/profile/check_costs.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_cut.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] constexpr int divided_up(int number, int by) noexcept { return (number + by - 1) / by; }

} // namespace detail

PULSE_CONSTEXPR cost_table costs_to_cut(const cost_table& costs, const tune_candidate& c, const cluster& machine,
                                        const candidate_options& options) {
    cost_table made = balanced_costs(costs, options.self_conditioning);
    const std::vector<double> speeds = pipeline_speeds(machine, {c.layout, c.pipeline_degree, c.data_degree});
    if (std::adjacent_find(speeds.begin(), speeds.end(), std::not_equal_to{}) == speeds.end()) { return made; }
    const parameter_memory kept = parameter_memory_of(options, c);
    for (layer_cost& layer : made.layers) {
        if (layer.parameter_bytes == 0) { continue; }
        const std::int64_t stepped =
            kept.sharded ? share_bytes_of(layer.parameter_bytes, c.data_degree) : layer.parameter_bytes;
        layer.backward_weight_us += optimizer_us_of(costs, options, kept, stepped) / c.microbatches;
    }
    return made;
}

PULSE_CONSTEXPR partition cut_candidate(const cost_table& costs, const tune_candidate& c, const parameter_memory& kept,
                                        const memory_limits& limits, const std::vector<double>& device_speed) {
    detail::check_microbatch(costs);
    check_costs(costs); // merge_layers requires it
    switch (c.kind) {
    case placement::folded: {
        if (c.fold == fold_cut::balanced) {
            if (!device_speed.empty()) { throw input_error("a fold cut by load needs devices that are all alike"); }
            // An interleaved cut with as many stages as the fold, placed on the fold.
            partition chain = interleaved_partition(costs, c.pipeline_degree, 2 * c.waves);
            chain.kind = placement::folded;
            chain.waves = c.waves;
            for (stage& s : chain.stages) { s.device = device_of(placement::folded, s.index, c.pipeline_degree); }
            return chain;
        }
        skip_aware_options asked{};
        asked.slack = c.slack;
        asked.device_speed = device_speed;
        for (int d = 0; d != c.pipeline_degree; ++d) { asked.memory.device_limit_bytes.push_back(limits.of(d)); }
        asked.memory.in_flight = c.recompute == recomputation::none ? 1 : 0;
        // With several waves coarse layers balance well, and the search grows fast with the number of layers.
        const std::size_t most = c.waves < 2 ? costs.layers.size() : 256 / static_cast<std::size_t>(c.waves);
        const merged_layers searched = merge_layers(costs, most);
        detail::check_microbatch(searched.costs);
        // First with room for gradients of other replicas, as much as they can take; then without.
        const int rooms = c.data_degree < 2 ? 0 : kept.gradient_bytes;
        const int state = kept.sharded ? detail::divided_up(kept.state_bytes, c.data_degree) : kept.state_bytes;
        for (const int more : {rooms, 0}) {
            asked.memory.state_factor =
                detail::divided_up(kept.scalar_bytes + kept.gradient_bytes + state + more, kept.scalar_bytes);
            maybe_partition found = find_skip_aware_partition(searched.costs, c.pipeline_degree, c.waves, asked);
            if (found) { return searched.of_layers(*std::move(found)); }
            if (rooms == 0) { break; }
        }
        asked.memory = {};
        return searched.of_layers(skip_aware_partition(searched.costs, c.pipeline_degree, c.waves, asked));
    }
    case placement::interleaved: return interleaved_partition(costs, c.pipeline_degree, c.waves, device_speed);
    case placement::sequential: break;
    }
    return sequential_partition(costs, c.pipeline_degree,
                                {.slack = c.slack, .routing = c.routing, .device_speed = device_speed});
}

} // namespace pulse
