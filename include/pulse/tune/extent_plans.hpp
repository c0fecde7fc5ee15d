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

/// The fraction of steps that each extent has, scaled to add up to 1; {1} if there are no extents.
[[nodiscard]] PULSE_INLINE std::vector<double> normalized_shares(const std::vector<extent_share>& extents);

/// Mean costs of a microbatch over extents with these shares: mean times and greatest bytes, so that a plan on them
/// fits the mean step, in memory that holds every step. `costs` has one table per share, all for one model and
/// microbatch size. Throws input_error if not, or if their frozen components differ: these encode for a next step of
/// any extent, and already have means and greatest bytes.
[[nodiscard]] PULSE_INLINE cost_table mean_costs(const std::vector<cost_table>& costs,
                                                 const std::vector<extent_share>& extents);

/// Turns a tuning on the mean costs of a run's extents into one plan per extent, with the tuning's candidate and cut.
/// Each extent has its own order: the best of the tuning's, the list scheduler's and, if `space` refines, the one that
/// a search finds. With frozen tasks all extents have the tuning's order and tasks, since a task encodes for any
/// extent. Each plan predicts the memory of all. Throws infeasible_error if an extent, or all in one memory, exceed the
/// limit.
PULSE_INLINE void plan_extents(tuning& found, const extent_cost_source& costs_of,
                               const std::vector<extent_share>& extents, const cluster& machine,
                               const tune_options& space);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/extent_plans.ipp> // IWYU pragma: keep
#endif
