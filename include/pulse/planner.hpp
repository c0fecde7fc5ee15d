#pragma once

static_assert(__cplusplus >= 202002L, "pulse: C++20 is needed (-std=c++20)");

/// The headers of a planner: plan_for, which chooses everything, and the steps behind it: the model graph, its costs,
/// the partition, the schedule, the plan and the plan's cost. Nothing here runs a layer.
///
/// Needs only the standard library.

// IWYU pragma: begin_exports
#include <pulse/core/error.hpp>

#include <pulse/model/fingerprint.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/model/graph_of.hpp>

#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/clusters.hpp>
#include <pulse/hardware/link_fit.hpp>

#include <pulse/profile/analytic.hpp>
#include <pulse/profile/analytic_frozen.hpp>
#include <pulse/profile/check_costs.hpp>

#include <pulse/partition/cascade.hpp>
#include <pulse/partition/explain.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/report.hpp>
#include <pulse/partition/sequential.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/partition/validate.hpp>

#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/cascade_problem.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/validate.hpp>
#include <pulse/schedule/validate_fill.hpp>

#include <pulse/plan/check.hpp>
#include <pulse/plan/cuda_memory.hpp>
#include <pulse/plan/fingerprint.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/require_valid.hpp>

#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulator.hpp>

#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/frozen_step.hpp>
#include <pulse/tune/plan_for.hpp>
#include <pulse/tune/plan_summary.hpp>
#include <pulse/tune/tuner.hpp>
// IWYU pragma: end_exports
