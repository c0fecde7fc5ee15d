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

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/error.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train {

/// What training keeps of a parameter, in the order of checkpoint_tensor.
enum class tensor_part : std::uint8_t { weight, first_moment, second_moment, average };

/// A flat range of a tensor's elements in this rank's memory: `values` are the elements `first` and those that follow.
///
/// A rank lists what it holds of the state, whole tensors or parts, in any order; several ranks may hold the same.
template <class T>
struct tensor_range {
    parameter what{};
    tensor_part part{};
    std::int64_t first{};
    std::span<T> values{};

    /// The tensor's name in the file.
    [[nodiscard]] std::string key() const {
        return detail::tensor_prefixes[static_cast<std::size_t>(part)] + what.name.str();
    }
};

/// The ranges of a flat array in which parameters lie one behind another, of which `values` are the elements `first`
/// and those that follow. Optimizer state that is sharded over replicas is such a share of a stage's array.
///
/// Throws input_error when the share ends behind the last parameter.
template <class T>
void append_ranges(std::vector<tensor_range<T>>& all, std::span<const parameter> parameters, tensor_part part,
                   std::int64_t first, std::span<T> values) {
    const std::int64_t last = first + static_cast<std::int64_t>(values.size());
    std::int64_t begin = 0;
    for (const parameter& what : parameters) {
        const std::int64_t end = begin + what.elements();
        const std::int64_t from = std::max(first, begin);
        const std::int64_t to = std::min(last, end);
        if (from < to || (begin == end && first <= begin && begin <= last)) {
            all.push_back(
                {what, part, from - begin,
                 values.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from))});
        }
        begin = end;
    }
    if (first < 0 || last > begin) {
        throw input_error("checkpoint: elements " + std::to_string(first) + " to " + std::to_string(last) +
                          " of parameters that have " + std::to_string(begin));
    }
}

/// The ranges of whole tensors; spans that are empty are not kept.
template <class T>
[[nodiscard]] std::vector<tensor_range<T>> ranges_of(std::span<const checkpoint_tensor<T>> tensors) {
    std::vector<tensor_range<T>> all;
    for (const checkpoint_tensor<T>& tensor : tensors) {
        const auto parts = detail::parts_of(tensor);
        for (std::size_t part = 0; part != parts.size(); ++part) {
            if (part != 0 && parts[part].empty()) { continue; }
            all.push_back({tensor.what, static_cast<tensor_part>(part), 0, parts[part]});
        }
    }
    return all;
}

/// A tensor_range without its values, as other ranks know it.
struct held_range {
    std::string key{};
    std::vector<std::int64_t> dims{};
    std::int64_t first{};
    std::int64_t elements{};
};

/// What a rank writes: elements of the tensor, from the range at that place of its list.
struct range_share {
    std::size_t range{};
    std::int64_t first{};
    std::int64_t elements{};

    [[nodiscard]] bool operator==(const range_share&) const = default;
};

/// Who writes what: every element of every tensor exactly once, by a rank that holds it. `held[rank]` is what ranks
/// hold.
///
/// What several ranks hold goes to the one with the least to write so far, the largest ranges first. Throws input_error
/// naming the tensor that has two shapes, that a rank holds beyond its end, or of which no rank holds a part.
[[nodiscard]] inline std::vector<std::vector<range_share>> deal_ranges(std::span<const std::vector<held_range>> held) {
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
        std::string_view key;
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
                throw input_error(place + " has " + std::to_string(elements) + " elements, rank " +
                                  std::to_string(h.rank) + " holds " + std::to_string(h.first) + " to " +
                                  std::to_string(h.last));
            }
            cuts.insert({h.first, h.last});
        }
        for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
            segment next{key, *cut, *std::next(cut), {}};
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
    struct written {
        std::string_view key;
        range_share share;
    };
    std::vector<std::vector<written>> dealt(held.size());
    std::vector<std::int64_t> load(held.size(), 0);
    for (const segment& s : segments) {
        const holder& writer =
            *std::min_element(s.holders.begin(), s.holders.end(),
                              [&](const holder& a, const holder& b) { return load[a.rank] < load[b.rank]; });
        load[writer.rank] += s.last - s.first;
        dealt[writer.rank].push_back({s.key, {writer.range, s.first, s.last - s.first}});
    }

    std::vector<std::vector<range_share>> shares(held.size());
    for (std::size_t rank = 0; rank != held.size(); ++rank) {
        std::sort(dealt[rank].begin(), dealt[rank].end(), [](const written& a, const written& b) {
            return std::tie(a.key, a.share.first) < std::tie(b.key, b.share.first);
        });
        for (const written& w : dealt[rank]) {
            auto& mine = shares[rank];
            if (!mine.empty() && mine.back().range == w.share.range &&
                mine.back().first + mine.back().elements == w.share.first) {
                mine.back().elements += w.share.elements;
            } else {
                mine.push_back(w.share);
            }
        }
    }
    return shares;
}

} // namespace pulse::train
