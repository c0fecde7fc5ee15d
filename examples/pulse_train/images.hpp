#pragma once

#include <string>

#include <pulse/train/dataset.hpp>

#include "arguments.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// The images that the arguments name. Throws input_error if they do not exist or have another shape.
[[nodiscard]] pulse::train::image_dataset load_images(const arguments& a, const sample_shape& wanted);

/// The validation images of a run, in its shape: t10k-images-idx3-ubyte of a folder, or a share of `images`, the last
/// ones, which are removed there. Throws input_error like load_images, and if none would remain.
[[nodiscard]] pulse::train::image_dataset load_validation(const arguments& a, const sample_shape& wanted,
                                                          pulse::train::image_dataset& images);

/// How many images or pictures there are, and their checksum.
[[nodiscard]] std::string text_of_data(const run_inputs& in);

} // namespace pulse_train
