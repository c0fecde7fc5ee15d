#pragma once

#include <array>
#include <utility>

namespace replicated_pipelines {

/// Pipeline devices and replicas.
inline constexpr std::array<std::pair<int, int>, 6> grids{{{1, 2}, {2, 2}, {2, 4}, {2, 3}, {1, 8}, {1, 6}}};

} // namespace replicated_pipelines
