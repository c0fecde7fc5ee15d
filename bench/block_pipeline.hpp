#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/merge_layers.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse_bench {

/// One stage on each device, whose numbers of blocks differ by at most one, whatever the blocks cost: how frameworks
/// without costs cut a model. A block is a layer with all of its parts.
[[nodiscard]] inline pulse::partition cut_by_blocks(const pulse::cost_table& costs, int devices) {
    std::vector<int> first{}; // first layer of each block
    std::string_view before{};
    for (std::size_t l = 0; l != costs.layers.size(); ++l) {
        const std::string_view block = pulse::whole_layer(costs.layers[l].name);
        if (block != before) { first.push_back(static_cast<int>(l)); }
        before = block;
    }
    const int blocks = static_cast<int>(first.size());
    if (blocks < devices) { throw pulse::infeasible_error("fewer blocks than devices"); }
    first.push_back(static_cast<int>(costs.layers.size()));
    pulse::partition made{};
    made.kind = pulse::placement::sequential;
    made.devices = devices;
    for (int d = 0; d != devices; ++d) {
        const auto begin = static_cast<std::size_t>(d * blocks / devices);
        const auto end = static_cast<std::size_t>((d + 1) * blocks / devices);
        made.stages.push_back({d, d, first[begin], first[end] - 1});
    }
    return made;
}

/// The best step of 1F1B with relayed skips on such cuts, over the degrees, microbatch sizes, layouts, recomputation
/// and sharding of `space`; none if no candidate fits.
[[nodiscard]] inline std::optional<pulse::tune_row> tune_block_pipeline(const pulse::cost_source& costs_of,
                                                                        const pulse::cluster& machine,
                                                                        pulse::tune_options space) {
    using namespace pulse;
    space.placements = {placement::sequential};
    space.routings = {skip_routing::relayed};
    space.methods = {schedule_method::one_f_one_b};
    space.split_backwards = {false};
    std::erase(space.recomputations, recomputation::selective);
    left_out_candidates left_out{};
    std::optional<tune_row> best{};
    for (const tune_candidate& c : enumerate_candidates(space, machine.devices(), machine.nodes, left_out)) {
        try {
            const cost_table costs = costs_of(c.microbatch_size);
            const memory_limits limits = memory_limits_of(machine, c, space);
            const prepared_candidate ready =
                prepare_candidate(costs, machine, cut_by_blocks(costs, c.pipeline_degree), c, space, limits);
            const plan made = evaluate_candidate(costs, c, ready, space.list).planned;
            if (best && made.predicted.step_us >= best->step_us) { continue; }
            best.emplace();
            best->candidate = c;
            best->step_us = made.predicted.step_us;
            best->samples_per_s = made.predicted.samples_per_s;
            best->bubble_ratio = made.predicted.bubble_ratio;
            best->boundary_bytes = made.predicted.boundary_bytes;
            best->skip_bytes = made.predicted.skip_bytes;
            best->gradient_bytes = ready.gradient_bytes;
        } catch (const infeasible_error&) { continue; } // no cut or no room
    }
    return best;
}

} // namespace pulse_bench
