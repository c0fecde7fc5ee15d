#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace pulse::launch::detail {

/// "rank 4" or "ranks 1, 4 and 6"; of more than sixteen, the first sixteen and the number of the others.
[[nodiscard]] inline std::string list_ranks(const std::vector<int>& ranks) {
    constexpr std::size_t most = 16;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    const std::size_t shown = std::min(ranks.size(), most);
    for (std::size_t i = 0; i != shown; ++i) {
        if (i != 0) { text += i + 1 == ranks.size() ? " and " : ", "; }
        text += std::to_string(ranks[i]);
    }
    if (shown == ranks.size()) { return text; }
    return text + " and " + std::to_string(ranks.size() - shown) + (ranks.size() - shown == 1 ? " other" : " others");
}

} // namespace pulse::launch::detail
