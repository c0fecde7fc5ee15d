#pragma once

#include <cstddef>
#include <vector>

#include <pulse/partition/partition.hpp>

namespace pulse::test {

/// Draws any kind of recomputation; a selective one marks any of `stages` stages. `draw(low, high)` includes both ends.
template <class Draw>
[[nodiscard]] stage_recomputation drawn_recomputation(Draw&& draw, std::size_t stages) {
    const auto kind = static_cast<recomputation>(draw(0, 3));
    if (kind != recomputation::selective) { return kind; }
    std::vector<char> flags{};
    for (std::size_t s = 0; s != stages; ++s) { flags.push_back(draw(0, 1) == 1 ? '\1' : '\0'); }
    return stage_recomputation{flags};
}

} // namespace pulse::test
