#pragma once

#include <string>

#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// Throws input_error unless what is asked for is a plan that examples/torch_pipeline runs, of one backbone and one
/// size, without previews and tasks of frozen networks, and the folder can be made.
void require_torch_runs(const arguments& a);

/// Writes what examples/torch_pipeline reads: plan.json, schedule.csv (the order of PyTorch's pipeline runtime),
/// stages.json (the names of layers and skips) and a README.md with the commands. Makes the folder where there is none.
void write_torch_folder(const std::string& folder, const pulse::tuning& found);

} // namespace pulse_plan
