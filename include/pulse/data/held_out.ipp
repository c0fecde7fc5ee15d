#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/held_out.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

PULSE_PICTURES_INLINE void keep_part(picture_index& index, double share, picture_part part) {
    const std::size_t all = index.entries.size();
    std::vector<std::uint64_t> rank;
    for (const picture_entry& entry : index.entries) {
        fingerprint of_name;
        if (index.layout == picture_layout::shards) { of_name.add(index.shards[entry.shard]); }
        rank.push_back(of_name.add(entry.name).value());
    }
    std::vector<std::size_t> order(all);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return rank[a] < rank[b]; });
    auto held = std::max<std::size_t>(1, static_cast<std::size_t>(std::llround(share * static_cast<double>(all))));
    while (held < all && rank[order[held]] == rank[order[held - 1]]) { ++held; }
    if (held >= all) {
        throw input_error("'" + index.folder.string() + "' has " + std::to_string(all) + " pictures; with " +
                          std::to_string(held) + " held out, none are left to train on");
    }
    const auto border = order.begin() + static_cast<std::ptrdiff_t>(held);
    part == picture_part::held_out ? order.erase(border, order.end()) : order.erase(order.begin(), border);
    std::sort(order.begin(), order.end()); // back into the order of the index
    std::vector<picture_entry> kept;
    for (const std::size_t i : order) { kept.push_back(std::move(index.entries[i])); }
    index.entries = std::move(kept);
    if (part == picture_part::held_out) { see_each_once(index); }
}

} // namespace pulse::data
