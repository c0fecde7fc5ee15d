#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/aspect_buckets.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

namespace detail {

[[nodiscard]] inline int whole_steps(std::int64_t size, int step) { return static_cast<int>(size / step * step); }

/// Side of the square of the same area, rounded down.
[[nodiscard]] inline std::int64_t side_of(const extent& area) {
    const std::int64_t pixels = std::int64_t{area.height} * area.width;
    auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(pixels)));
    while (side * side > pixels) { --side; }
    return side;
}

} // namespace detail

PULSE_PICTURES_INLINE bucket_options with_sides(bucket_options o) {
    constexpr int longest_side = 1 << 15;
    const auto side_in_range = [](int side) { return side >= 1 && side <= longest_side; };
    if (!side_in_range(o.area.height) || !side_in_range(o.area.width)) {
        throw input_error{"the area must be 1 to " + std::to_string(longest_side) + " pixels high and wide"};
    }
    if (!side_in_range(o.step)) {
        throw input_error{"the step must be 1 to " + std::to_string(longest_side) + " pixels"};
    }
    const std::int64_t side = detail::side_of(o.area);
    if (o.least == 0) { o.least = std::max(o.step, detail::whole_steps(side / 2, o.step)); }
    if (o.most == 0) { o.most = detail::whole_steps(std::min<std::int64_t>(2 * side, longest_side), o.step); }
    if (o.least < 1 || o.least % o.step != 0 || o.most % o.step != 0 || o.least > o.most || o.most > longest_side) {
        throw input_error{"the sides, " + std::to_string(o.least) + " to " + std::to_string(o.most) +
                          " pixels, must be multiples of " + std::to_string(o.step) + " in ascending order, at most " +
                          std::to_string(longest_side)};
    }
    return o;
}

PULSE_PICTURES_INLINE std::vector<extent> bucket_sizes(const bucket_options& options) {
    const bucket_options o = with_sides(options);
    const std::int64_t area = std::int64_t{o.area.height} * o.area.width;
    std::vector<extent> all;
    const auto add = [&](int height, int width) {
        if (std::min(height, width) < o.least || std::max(height, width) > o.most) { return; }
        all.push_back({height, width});
        all.push_back({width, height});
    };
    const int square = detail::whole_steps(detail::side_of(o.area), o.step);
    add(square, square);
    for (int height = o.least; height <= o.most; height += o.step) {
        add(height, std::min(o.most, detail::whole_steps(area / height, o.step)));
    }
    const auto before = [](const extent& a, const extent& b) {
        return a.height != b.height ? a.height < b.height : a.width < b.width;
    };
    std::sort(all.begin(), all.end(), before);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.empty()) {
        throw input_error{"no size of " + std::to_string(o.least) + " to " + std::to_string(o.most) +
                          " pixels a side has at most " + std::to_string(area) + " pixels"};
    }
    return all;
}

PULSE_PICTURES_INLINE std::size_t nearest_bucket(std::span<const extent> sizes, const picture_size& picture) {
    const auto pixels = [](const extent& e) { return std::int64_t{e.height} * e.width; };
    std::size_t best = 0;
    double best_off = 0;
    for (std::size_t b = 0; b != sizes.size(); ++b) {
        // Integers below 2^53 and one division give the same result on every machine.
        const std::int64_t one = std::int64_t{picture.height} * sizes[b].width;
        const std::int64_t other = std::int64_t{picture.width} * sizes[b].height;
        const double off = static_cast<double>(std::max(one, other)) / static_cast<double>(std::min(one, other));
        if (b == 0 || off < best_off || (off == best_off && pixels(sizes[b]) > pixels(sizes[best]))) {
            best = b;
            best_off = off;
        }
    }
    return best;
}

PULSE_PICTURES_INLINE picture_buckets sort_into_buckets(std::span<const picture_size> pictures,
                                                        std::span<const extent> sizes) {
    constexpr std::uint32_t nowhere = 0xFFFFFFFF;
    picture_buckets made;
    std::vector<std::uint32_t> number(sizes.size(), nowhere);
    std::vector<std::size_t> nearest;
    for (const picture_size& one : pictures) {
        nearest.push_back(one == picture_size{} ? sizes.size() : nearest_bucket(sizes, one));
        if (nearest.back() != sizes.size()) { number[nearest.back()] = 0; }
    }
    for (std::size_t b = 0; b != sizes.size(); ++b) {
        if (number[b] == nowhere) { continue; }
        number[b] = static_cast<std::uint32_t>(made.sizes.size());
        made.sizes.push_back(sizes[b]);
    }
    if (made.sizes.empty()) { throw input_error{"no picture can be read"}; }
    for (const std::size_t b : nearest) {
        made.of_picture.push_back(b == sizes.size() ? static_cast<std::uint32_t>(made.sizes.size()) : number[b]);
    }
    return made;
}

} // namespace pulse::data
