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

/// Reads the plan where the arguments name one, whose microbatch size becomes that of `in.args` then.
void read_plan(run_inputs& in);

/// Profile and cluster of the files that the arguments name.
[[nodiscard]] measurements read_known(const arguments& a);

/// Sizes of microbatches that a plan may have: one, or powers of two, smallest first.
[[nodiscard]] std::vector<int> microbatch_sizes(const arguments& a);

/// Name of this machine, and what tells it from another of that name.
[[nodiscard]] std::string machine_name();

/// Throws input_error naming the file unless the frozen components of a profile are those of a run but for their times.
void require_same_frozen(const pulse::cost_table& read, const std::vector<pulse::frozen_component>& blank,
                         const std::string& file);

/// Makes the plan of the run from what was measured, unless one was read, says what is expected of it, and writes the
/// files of --profile-out and --cluster-out. `estimated` are the costs of the model at the extents of the run, with the
/// times that count where none were measured. Throws input_error naming where plan or profile are from unless they fit
/// the model and the plan cannot deadlock, and infeasible_error where there is none.
void make_plan(run_inputs& in, const measurements& from, const pulse::extent_cost_source& estimated);

/// What is asked of a planner, for devices with these links. Throws input_error naming the option that cannot be.
[[nodiscard]] pulse::plan_request request_of(const run_inputs& in, const pulse::cluster& machine);

/// The same for a cascade, of which `both` has no more than the arguments and, where one was read, the plan. Throws as
/// make_plan and plan_cascade_for.
void make_cascade_plan(run_inputs& both, const measurements& first, const pulse::extent_cost_source& first_estimated,
                       const measurements& second, const pulse::extent_cost_source& second_estimated);

/// Plan and costs of the run of one backbone become its part of those of a cascade, numbered as its own.
void take_part(run_inputs& of, const run_inputs& both, bool is_second);

/// Throws input_error on every rank, naming what differs, unless all ranks have the same build and the same arguments
/// where that matters; to be called first, by every rank, where ranks are processes.
void require_same_start(const arguments& a, rank_collectives& among);

/// Costs and plan become those of rank 0; to be called by every rank, where ranks are processes.
void share_plan(run_inputs& in, rank_collectives& among);

} // namespace pulse_train
