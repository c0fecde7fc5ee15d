#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

PULSE_INLINE std::vector<std::vector<range_share>> deal_ranges(std::span<const std::vector<held_range>> held) {
    struct holder {
        std::size_t rank;
        std::size_t range;
        std::int64_t first;
        std::int64_t last;
    };
    std::map<std::string_view, std::vector<holder>> tensors;
    const auto range_at = [&](const holder& h) -> const held_range& { return held[h.rank][h.range]; };
    for (std::size_t rank = 0; rank != held.size(); ++rank) {
        for (std::size_t i = 0; i != held[rank].size(); ++i) {
            const held_range& range = held[rank][i];
            tensors[range.key].push_back({rank, i, range.first, range.first + range.elements});
        }
    }

    struct segment {
        std::int64_t first;
        std::int64_t last;
        std::vector<holder> holders;
    };
    std::vector<segment> segments;
    for (const auto& [key, holders] : tensors) {
        const std::string place = "checkpoint: tensor '" + std::string{key} + "'";
        const held_range& one = range_at(holders.front());
        std::int64_t elements = 1;
        for (const std::int64_t extent : one.dims) { elements *= extent; }
        std::set<std::int64_t> cuts{0, elements};
        for (const holder& h : holders) {
            if (range_at(h).dims != one.dims) {
                throw input_error(place + " has different shapes on ranks " + std::to_string(holders.front().rank) +
                                  " and " + std::to_string(h.rank));
            }
            if (h.first < 0 || h.last < h.first || h.last > elements) {
                throw input_error(place + " has " + std::to_string(elements) + " elements, but rank " +
                                  std::to_string(h.rank) + " holds " + std::to_string(h.first) + " to " +
                                  std::to_string(h.last));
            }
            cuts.insert({h.first, h.last});
        }
        for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
            segment next{*cut, *std::next(cut), {}};
            for (const holder& h : holders) {
                if (h.first <= next.first && next.last <= h.last) { next.holders.push_back(h); }
            }
            if (next.holders.empty()) {
                throw input_error(place + ": no rank holds elements " + std::to_string(next.first) + " to " +
                                  std::to_string(next.last));
            }
            segments.push_back(std::move(next));
        }
    }

    std::stable_sort(segments.begin(), segments.end(),
                     [](const segment& a, const segment& b) { return a.last - a.first > b.last - b.first; });
    std::vector<std::vector<range_share>> dealt(held.size());
    std::vector<std::int64_t> load(held.size(), 0);
    for (const segment& s : segments) {
        const holder& writer =
            *std::min_element(s.holders.begin(), s.holders.end(),
                              [&](const holder& a, const holder& b) { return load[a.rank] < load[b.rank]; });
        load[writer.rank] += s.last - s.first;
        dealt[writer.rank].push_back({writer.range, s.first, s.last - s.first});
    }

    std::vector<std::vector<range_share>> shares(held.size());
    for (std::size_t rank = 0; rank != held.size(); ++rank) {
        std::sort(dealt[rank].begin(), dealt[rank].end(), [](const range_share& a, const range_share& b) {
            return std::tie(a.range, a.first) < std::tie(b.range, b.first);
        });
        for (const range_share& next : dealt[rank]) {
            auto& mine = shares[rank];
            if (!mine.empty() && mine.back().range == next.range &&
                mine.back().first + mine.back().elements == next.first) {
                mine.back().elements += next.elements;
            } else {
                mine.push_back(next);
            }
        }
    }
    return shares;
}

} // namespace pulse::train
