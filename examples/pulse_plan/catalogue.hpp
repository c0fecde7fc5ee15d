#pragma once

#include <string>
#include <vector>

#include <pulse/model/graph.hpp>

namespace pulse_plan {

// The zoo as this program needs it, compiled in one place because reading all backbones takes the compiler long.

[[nodiscard]] std::vector<std::string> backbone_names();

/// The backbone of that name, which is one of backbone_names().
[[nodiscard]] pulse::graph_view backbone_of(const std::string& name);

} // namespace pulse_plan
