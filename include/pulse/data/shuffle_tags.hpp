#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/train/random.hpp>

namespace pulse::data {

/// A caption with its comma-separated tags in an order drawn from `seed`; the first `kept` stay in place. White space
/// around tags and empty tags are dropped; tags are joined by ", ".
[[nodiscard]] inline std::string shuffle_tags(std::string_view caption, std::size_t kept, std::uint64_t seed) {
    constexpr std::string_view blank = " \t\r\n\f\v";
    std::vector<std::string_view> tags;
    while (!caption.empty()) {
        const std::size_t comma = caption.find(',');
        std::string_view tag = caption.substr(0, comma);
        caption.remove_prefix(comma == std::string_view::npos ? caption.size() : comma + 1);
        tag.remove_prefix(std::min(tag.find_first_not_of(blank), tag.size()));
        tag = tag.substr(0, tag.find_last_not_of(blank) + 1);
        if (!tag.empty()) { tags.push_back(tag); }
    }
    const train::random_source chance{seed, train::random_stream::tags};
    for (std::size_t left = tags.size(); left > kept + 1; --left) { // Fisher-Yates, from the end
        std::swap(tags[left - 1], tags[kept + chance.below(static_cast<std::uint32_t>(left - kept), left)]);
    }
    std::string shuffled;
    for (const std::string_view tag : tags) { shuffled += (shuffled.empty() ? "" : ", ") + std::string{tag}; }
    return shuffled;
}

} // namespace pulse::data
