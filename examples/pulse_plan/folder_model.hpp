#pragma once

#include <pulse/model/extent.hpp>
#include <pulse/nn/value_graph.hpp>

#include "catalogue.hpp"

namespace pulse_plan {

/// The backbone of --model-config, a diffusers folder or its unet or transformer, at an extent; none: its own. It is
/// named after the folder, as in pulse_train's build. Throws input_error naming the option and the file.
[[nodiscard]] pulse::value_graph graph_of_folder(const backbone_name& said, const pulse::extent& to);

} // namespace pulse_plan
