#pragma once

#include <string>

#include <pulse/nn/value_graph.hpp>

namespace pulse_plan {

/// The backbone that --model-config says: a diffusers folder, or that of its unet or transformer, and behind an @ the
/// height and width of what it reads. Its name is the folder's, as pulse_train's build names it. Throws input_error
/// naming the option and the file.
[[nodiscard]] pulse::value_graph graph_of_folder(const std::string& text);

} // namespace pulse_plan
