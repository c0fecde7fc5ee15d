#pragma once

#include <pulse/model/extent.hpp>
#include <pulse/nn/value_graph.hpp>

#include "catalogue.hpp"

namespace pulse_plan {

/// The backbone that --model-config says, a diffusers folder or that of its unet or transformer, at an extent; none:
/// its own. Its name is the folder's, as pulse_train's build names it. Throws input_error naming the option and the
/// file.
[[nodiscard]] pulse::value_graph graph_of_folder(const backbone_name& said, const pulse::extent& to);

} // namespace pulse_plan
