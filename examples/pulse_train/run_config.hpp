#pragma once

#include <map>
#include <string>

#include <pulse/checkpoint/sharded.hpp>

#include "run_inputs.hpp"

namespace pulse_train {

/// What decides the course of training; how it is cut, placed and ordered does not.
[[nodiscard]] std::map<std::string, std::string> config_of(const run_inputs& in);

/// What decides the course of a cascade's training.
[[nodiscard]] std::map<std::string, std::string> cascade_config_of(const run_inputs& both, const run_inputs& second);

/// Gives the plan a global batch: what is not said is 16 samples x 4 microbatches of one replica or, where a run goes
/// on, as it was, since with other microbatches or replicas its bits would be others.
void complete_batch(run_inputs& in);

/// Where the run's checkpoints go.
[[nodiscard]] pulse::train::checkpoint_place checkpoints_of(const run_inputs& in);

/// Where the one with the least loss of validation goes.
[[nodiscard]] pulse::train::checkpoint_place best_of(const run_inputs& in);

/// Throws input_error when the run to be continued was another one.
void require_same_config(const run_inputs& in);

} // namespace pulse_train
