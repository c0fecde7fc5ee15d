#pragma once

#include <array>
#include <utility>

namespace replicated_pipelines {

/// Pipeline devices and replicas.
inline constexpr std::array<std::pair<int, int>, 5> grids{{{1, 2}, {2, 2}, {4, 2}, {2, 3}, {1, 8}}};

} // namespace replicated_pipelines
