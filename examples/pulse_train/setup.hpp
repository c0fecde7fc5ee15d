#pragma once

#include <string>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/profile/frozen_component.hpp>
#include <pulse/tune/extent_plans.hpp>
#include <pulse/tune/plan_request.hpp>

#include "arguments.hpp"
#include "rank_collectives.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

struct measurements;

/// Reads the plan if the arguments name one; its microbatch size then becomes that of `in.args`.
void read_plan(run_inputs& in);

/// Reads the profile and the cluster from the files that the arguments name.
[[nodiscard]] measurements read_known(const arguments& a);

/// Microbatch sizes that a plan may have: one, or powers of two, smallest first.
[[nodiscard]] std::vector<int> microbatch_sizes(const arguments& a);

/// Name of this machine, with an identifier that is unique among machines of that name.
[[nodiscard]] std::string machine_name();

/// Throws input_error naming the file unless a profile's frozen components equal the run's except for their times.
void require_same_frozen(const pulse::cost_table& read, const std::vector<pulse::frozen_component>& blank,
                         const std::string& file);

/// Makes the plan of the run from the measurements unless one was read, prints its prediction, and writes the files of
/// --profile-out and --cluster-out. `estimated` are the model's costs at the run's extents, with the times to use if
/// none were measured. Throws input_error naming the source of plan or profile unless they fit the model and the plan
/// cannot deadlock, and infeasible_error if there is no plan.
void make_plan(run_inputs& in, const measurements& from, const pulse::extent_cost_source& estimated);

/// The planner's request for devices with these links. Throws input_error naming an impossible option.
[[nodiscard]] pulse::plan_request request_of(const run_inputs& in, const pulse::cluster& machine);

/// The same for a cascade; `both` has only the arguments and, if one was read, the plan. Throws as make_plan and
/// plan_cascade_for do.
void make_cascade_plan(run_inputs& both, const measurements& first, const pulse::extent_cost_source& first_estimated,
                       const measurements& second, const pulse::extent_cost_source& second_estimated);

/// Gives a backbone's run its part of a cascade's plan and costs, with its own numbering.
void take_part(run_inputs& of, const run_inputs& both, bool is_second);

/// Throws input_error on every rank, naming the difference, unless all ranks have the same build and the same arguments
/// where that matters. Collective over processes; must be called first.
void require_same_start(const arguments& a, rank_collectives& among);

/// Replaces costs and plan by rank 0's. Collective over processes.
void share_plan(run_inputs& in, rank_collectives& among);

} // namespace pulse_train
