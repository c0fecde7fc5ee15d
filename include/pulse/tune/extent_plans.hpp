#pragma once

#include <functional>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// Costs for a microbatch size at one of the extents of a run.
using extent_cost_source = std::function<cost_table(int, const extent&)>;

/// What part of the steps each extent has, so that they add up to 1; {1} where there are none: every step is of one.
[[nodiscard]] PULSE_INLINE std::vector<double> normalized_shares(const std::vector<extent_share>& extents);

/// What a microbatch of a run's steps costs, whose extents have these shares: mean times and the greatest bytes, so
/// that a plan on it is one for the mean step, in memory that holds every one. `costs` are of one model and microbatch
/// size, one for each share. Throws input_error where they are not, or where their frozen components differ: these
/// encode for a next step of any extent, and what they have are means and the greatest bytes already.
[[nodiscard]] PULSE_INLINE cost_table mean_costs(const std::vector<cost_table>& costs,
                                                 const std::vector<extent_share>& extents);

/// Turns a tuning on the mean costs of a run's extents into one for each of these: with its candidate and its cut, and
/// an order of passes of its own, the best of the tuning's, the list scheduler's and, where `space` refines, what a
/// search finds; where there are frozen tasks, all have the tuning's order and tasks, as what a task encodes for is of
/// any extent. Each predicts the memory of all. Throws infeasible_error where an extent, or all in one memory, exceed
/// the limit.
PULSE_INLINE void plan_extents(tuning& found, const extent_cost_source& costs_of,
                               const std::vector<extent_share>& extents, const cluster& machine,
                               const tune_options& space);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/extent_plans.ipp> // IWYU pragma: keep
#endif
