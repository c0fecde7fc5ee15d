#pragma once

#include <string>

#include "run_inputs.hpp"

namespace pulse_train {

/// Whether a run may continue a checkpoint whose config describes its images as `before`: it uses the same images in
/// the same way, or --data-changed allows others, which rank 0 then reports. Throws input_error saying what has changed
/// if it is not allowed.
[[nodiscard]] bool same_images(const run_inputs& in, const std::string& before);

/// Writes the pictures' names and captions into the run's folder, so that a resumed run can find what has changed.
void keep_listing(const run_inputs& in);

} // namespace pulse_train
