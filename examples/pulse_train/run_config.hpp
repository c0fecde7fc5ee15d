#pragma once

#include <map>
#include <string>

#include <pulse/checkpoint/sharded.hpp>

#include "run_inputs.hpp"

namespace pulse_train {

/// What decides the course of training; cut, placement and order do not.
[[nodiscard]] std::map<std::string, std::string> config_of(const run_inputs& in);

/// What decides the course of a cascade's training.
[[nodiscard]] std::map<std::string, std::string> cascade_config_of(const run_inputs& both, const run_inputs& second);

/// Sets the plan's global batch. What is not given defaults to 16 samples x 4 microbatches of one replica, or in a
/// resumed run to its old values, because other microbatches or replicas would change its bits.
void complete_batch(run_inputs& in);

/// The place of the run's checkpoints.
[[nodiscard]] pulse::train::checkpoint_place checkpoints_of(const run_inputs& in);

/// The place of the checkpoint with the lowest validation loss.
[[nodiscard]] pulse::train::checkpoint_place best_of(const run_inputs& in);

/// Throws input_error if the run to continue was a different one.
void require_same_config(const run_inputs& in);

} // namespace pulse_train
