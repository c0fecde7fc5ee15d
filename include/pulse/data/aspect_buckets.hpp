#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// Sizes of about one area and of different shapes, of which each picture is seen in that nearest to its own shape.
struct bucket_options {
    /// Its pixels are the most that a bucket has; none: there are no buckets.
    extent area{};
    /// Heights and widths are multiples of it.
    int step = 64;
    int least = 0; ///< height or width; 0: half of the area's side
    int most = 0;  ///< height or width; 0: twice the area's side

    [[nodiscard]] bool operator==(const bucket_options&) const = default;
};

namespace detail {

[[nodiscard]] inline int whole_steps(std::int64_t size, int step) { return static_cast<int>(size / step * step); }

/// Of the square of an area, rounded down.
[[nodiscard]] inline std::int64_t side_of(const extent& area) {
    const std::int64_t pixels = std::int64_t{area.height} * area.width;
    auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(pixels)));
    while (side * side > pixels) { --side; }
    return side;
}

} // namespace detail

/// The options with the sides that they leave open. Throws input_error naming the one that is out of range.
[[nodiscard]] inline bucket_options with_sides(bucket_options o) {
    constexpr int longest_side = 1 << 15;
    const auto side_in_range = [](int side) { return side >= 1 && side <= longest_side; };
    if (!side_in_range(o.area.height) || !side_in_range(o.area.width)) {
        throw input_error{"the area is that of 1 to " + std::to_string(longest_side) + " pixels a side"};
    }
    if (!side_in_range(o.step)) {
        throw input_error{"the step must be 1 to " + std::to_string(longest_side) + " pixels"};
    }
    const std::int64_t side = detail::side_of(o.area);
    if (o.least == 0) { o.least = std::max(o.step, detail::whole_steps(side / 2, o.step)); }
    if (o.most == 0) { o.most = detail::whole_steps(std::min<std::int64_t>(2 * side, longest_side), o.step); }
    if (o.least < 1 || o.least % o.step != 0 || o.most % o.step != 0 || o.least > o.most || o.most > longest_side) {
        throw input_error{"the sides, " + std::to_string(o.least) + " to " + std::to_string(o.most) +
                          " pixels, must be multiples of " + std::to_string(o.step) + " in that order, up to " +
                          std::to_string(longest_side)};
    }
    return o;
}

/// The sizes that the options describe: of each height from the least to the most the width that fills the area, and
/// the other way round, and the square; by height, then width. Throws input_error as with_sides, or where there are
/// none.
///
/// Source: kohya-ss/sd-scripts, `make_bucket_resolutions`, whose rule this is; SDXL was trained on such sizes (Podell
/// et al. 2023, section 2.3 and appendix I).
[[nodiscard]] inline std::vector<extent> bucket_sizes(const bucket_options& options) {
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
        throw input_error{"none of " + std::to_string(o.least) + " to " + std::to_string(o.most) +
                          " pixels a side has at most " + std::to_string(area) + " pixels"};
    }
    return all;
}

/// Which of the sizes has the shape nearest to a picture's: the quotient of both ratios is nearest to 1. Of equally
/// near ones the larger, and then the first.
[[nodiscard]] inline std::size_t nearest_bucket(std::span<const extent> sizes, const picture_size& picture) {
    const auto pixels = [](const extent& e) { return std::int64_t{e.height} * e.width; };
    std::size_t best = 0;
    double best_off = 0;
    for (std::size_t b = 0; b != sizes.size(); ++b) {
        // Whole numbers below 2^53 and one division: the same on every machine.
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

/// The sizes in which pictures are seen, and which of these each has; none: all have one.
struct picture_buckets {
    std::vector<extent> sizes{};
    std::vector<std::uint32_t> of_picture{}; ///< sizes.size(): it cannot be read, and stands nowhere

    [[nodiscard]] bool operator==(const picture_buckets&) const = default;
};

/// Puts pictures of these sizes, upright, into the nearest buckets; 0 x 0 is one that cannot be read. Buckets without
/// pictures are left out. Throws input_error where all are.
[[nodiscard]] inline picture_buckets sort_into_buckets(std::span<const picture_size> pictures,
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
    if (made.sizes.empty()) { throw input_error{"there is no picture that can be read"}; }
    for (const std::size_t b : nearest) {
        made.of_picture.push_back(b == sizes.size() ? static_cast<std::uint32_t>(made.sizes.size()) : number[b]);
    }
    return made;
}

} // namespace pulse::data
