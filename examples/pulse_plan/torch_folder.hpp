#pragma once

#include <string>

#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// Throws input_error unless the request is a plan that examples/torch_pipeline runs (one backbone and one size, no
/// previews, no frozen tasks) and the folder can be made.
void require_torch_runs(const arguments& a);

/// Writes what examples/torch_pipeline reads: plan.json, schedule.csv (the order for PyTorch's pipeline runtime),
/// stages.json (the names of layers and skips) and a README.md with the commands. Makes the folder if needed.
void write_torch_folder(const std::string& folder, const pulse::tuning& found);

} // namespace pulse_plan
