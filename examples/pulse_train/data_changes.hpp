#pragma once

#include <string>

#include "run_inputs.hpp"

namespace pulse_train {

/// Whether a run may go on from a checkpoint whose config says `before` of images: it does the same with the same
/// ones, or --data-changed allows others, which rank 0 tells of then. Throws input_error saying what has changed where
/// it does not.
[[nodiscard]] bool same_images(const run_inputs& in, const std::string& before);

/// Writes names and captions of the pictures into the run's folder, where a run that goes on finds what has changed.
void keep_listing(const run_inputs& in);

} // namespace pulse_train
