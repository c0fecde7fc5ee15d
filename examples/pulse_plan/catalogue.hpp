#pragma once

#include <string>
#include <vector>

#include <pulse/hardware/device.hpp>
#include <pulse/model/graph.hpp>
#include <pulse/profile/frozen_component.hpp>

namespace pulse_plan {

// The zoo as this program needs it, compiled in one place because reading all backbones takes the compiler long.

[[nodiscard]] std::vector<std::string> backbone_names();

/// The backbone of that name, which is one of backbone_names().
[[nodiscard]] pulse::graph_view backbone_of(const std::string& name);

/// What that backbone is trained beside; none where it reads pictures.
[[nodiscard]] std::vector<pulse::frozen_component> frozen_costs_of(const std::string& name, const pulse::device& on,
                                                                   int scalar_bytes);

} // namespace pulse_plan
