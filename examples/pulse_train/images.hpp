#pragma once

#include <string>

#include <pulse/train/dataset.hpp>

#include "arguments.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// The images that the arguments name. Throws input_error when they are not there or not of that shape.
[[nodiscard]] pulse::train::image_dataset load_images(const arguments& a, const sample_shape& wanted);

/// The images by which a run is validated, of its shape: t10k-images-idx3-ubyte of a folder, or a share of `images`,
/// their last ones, which go from there. Throws input_error as load_images, and where none would stay.
[[nodiscard]] pulse::train::image_dataset load_validation(const arguments& a, const sample_shape& wanted,
                                                          pulse::train::image_dataset& images);

/// How many images or pictures there are, and a checksum of them.
[[nodiscard]] std::string text_of_data(const run_inputs& in);

} // namespace pulse_train
