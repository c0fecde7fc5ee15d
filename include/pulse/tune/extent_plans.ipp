#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/peak_bytes.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

namespace detail {

/// The plan of a candidate at one extent, with the cut of `mean` and the best of the orders that are tried.
[[nodiscard]] inline plan plan_extent(const cost_table& costs, const tune_candidate& c, const plan& mean,
                                      const cluster& machine, const tune_options& space, const memory_limits& limits) {
    const prepared_candidate ready = prepare_candidate(costs, machine, mean.cut, c, space, limits);
    const double passes_bound_us = lower_bound_us(ready.step.plain);
    if (!mean.frozen_tasks.empty()) {
        plan same = unordered_plan(costs, mean.cut, c, ready.step);
        same.order = mean.order;
        same.frozen_tasks = mean.frozen_tasks;
        same.frozen_hosts = mean.frozen_hosts;
        predict_plan(same, costs, ready, limits, false);
        same.predicted.lower_bound_us = frozen_step_bound_us(costs, c, ready.step, passes_bound_us);
        return same;
    }
    evaluated_candidate best = evaluate_candidate(costs, c, ready, space.list);
    const auto keep_faster = [&](evaluated_candidate other) {
        const std::vector<std::int64_t>& peaks = other.planned.predicted.peak_memory_bytes;
        if (limits.worst_over(peaks) >= 0 || other.planned.predicted.step_us >= best.planned.predicted.step_us) {
            return;
        }
        best = std::move(other);
    };
    keep_faster(simulate_candidate(costs, c, ready, retimed(ready.step.problem, mean.order), limits.any()));
    double proof_us = 0;
    if (space.refine) {
        try {
            keep_faster(refine_candidate(costs, c, ready, space.refine, best.room_bytes, proof_us));
        } catch (const infeasible_error&) {} // the order found without it fits
    }
    best.planned.predicted.lower_bound_us = step_bound_us(ready.step, std::max(passes_bound_us, proof_us));
    return std::move(best.planned);
}

} // namespace detail

PULSE_INLINE std::vector<double> normalized_shares(const std::vector<extent_share>& extents) {
    if (extents.empty()) { return {1.0}; }
    double all = 0;
    for (const extent_share& one : extents) { all += one.share; }
    std::vector<double> shares;
    for (const extent_share& one : extents) { shares.push_back(one.share / all); }
    return shares;
}

PULSE_INLINE cost_table mean_costs(const std::vector<cost_table>& costs, const std::vector<extent_share>& extents) {
    const std::vector<double> shares = normalized_shares(extents);
    cost_table mean = costs.front();
    for (layer_cost& layer : mean.layers) { layer.forward_us = layer.backward_input_us = layer.backward_weight_us = 0; }
    const auto grow = [](std::int64_t& bytes, std::int64_t other) { bytes = std::max(bytes, other); };
    for (std::size_t e = 0; e != costs.size(); ++e) {
        const cost_table& one = costs[e];
        if (one.model != mean.model || one.microbatch_size != mean.microbatch_size ||
            one.layers.size() != mean.layers.size() || one.skips.size() != mean.skips.size() ||
            one.further_chains != mean.further_chains) {
            throw input_error("extents: their costs must be of one model and microbatch size");
        }
        if (one.frozen != mean.frozen) { throw input_error("extents: they must have the same frozen components"); }
        const double share = shares[e];
        for (std::size_t l = 0; l != one.layers.size(); ++l) {
            layer_cost& to = mean.layers[l];
            const layer_cost& of = one.layers[l];
            to.forward_us += share * of.forward_us;
            to.backward_input_us += share * of.backward_input_us;
            to.backward_weight_us += share * of.backward_weight_us;
            grow(to.saved_bytes, of.saved_bytes);
            grow(to.output_bytes, of.output_bytes);
            grow(to.deferred_bytes, of.deferred_bytes);
            grow(to.workspace_bytes, of.workspace_bytes);
            grow(to.frozen_output_bytes, of.frozen_output_bytes);
            grow(to.open_bytes, of.open_bytes);
        }
        for (std::size_t s = 0; s != one.skips.size(); ++s) { grow(mean.skips[s].bytes, one.skips[s].bytes); }
        grow(mean.conditioning_bytes, one.conditioning_bytes);
        grow(mean.frozen_conditioning_bytes, one.frozen_conditioning_bytes);
        grow(mean.input_bytes, one.input_bytes);
    }
    return mean;
}

PULSE_INLINE void plan_extents(tuning& found, const extent_cost_source& costs_of,
                               const std::vector<extent_share>& extents, const cluster& machine,
                               const tune_options& space) {
    const plan mean = std::move(found.plan);
    tune_candidate c = found.best_row().candidate;
    c.recompute = mean.recompute;
    const std::vector<double> shares = normalized_shares(extents);
    found.extent = extents.front().extent;
    found.share = shares.front();
    found.costs = costs_of(c.microbatch_size, found.extent);
    found.others.clear();
    for (std::size_t e = 1; e != extents.size(); ++e) {
        found.others.push_back({{extents[e].extent, shares[e], {}}, costs_of(c.microbatch_size, extents[e].extent)});
    }
    const auto plan_within = [&](const memory_limits& limits, const extent& to, const cost_table& costs) {
        try {
            return detail::plan_extent(costs, c, mean, machine, space, limits);
        } catch (const infeasible_error& e) {
            throw infeasible_error("extent " + detail::text_of(to) + ": " + e.what());
        }
    };
    // The memory of all extents may exceed the limit that each of them keeps to: its largest parts may come from
    // different extents.
    memory_limits limits = found.limits;
    for (int attempt = 0;; ++attempt) {
        found.plan = plan_within(limits, found.extent, found.costs);
        for (planned_extent& other : found.others) { other.plan = plan_within(limits, other.extent, other.costs); }
        const std::vector<std::int64_t> peaks = peak_bytes(found);
        found.plan.predicted.peak_memory_bytes = peaks;
        for (planned_extent& other : found.others) { other.plan.predicted.peak_memory_bytes = peaks; }
        const int over = found.limits.worst_over(peaks);
        if (over < 0) { return; }
        if (attempt == 3) {
            throw infeasible_error("device " + std::to_string(over) + " needs " +
                                   std::to_string(peaks[static_cast<std::size_t>(over)]) + " bytes of " +
                                   std::to_string(found.limits.of(over)) + " for steps of all extents");
        }
        std::vector<std::int64_t> excess{};
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            excess.push_back(std::max<std::int64_t>(0, peaks[d] - found.limits.of(d)));
        }
        limits = limits.less(excess);
    }
}

} // namespace pulse
