#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/io/png.hpp>

namespace pulse::data {

/// The size to resize a picture to, and the crop to take from the result.
struct resized_part {
    int width{};  ///< of the whole resized picture
    int height{}; ///< of the whole resized picture
    int left{};
    int top{};
    int crop_width{};
    int crop_height{};
};

namespace detail {

/// For each pixel of an axis of the resized picture: the stored pixels that it is made of, and their weights.
struct axis_weights {
    std::vector<int> first{};
    std::vector<int> count{};
    std::vector<std::int32_t> weights{}; ///< `most` for each pixel, in units of 2^-22
    int most{};
};

inline constexpr unsigned weight_bits = 22;

/// Keys' cubic with a = -1/2.
[[nodiscard]] inline double cubic(double x) noexcept {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (x < 1.0) { return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0; }
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * a : 0.0;
}

/// Weights of pixels [first, first + count) of an axis that is resized from `from` to `to` pixels. When it shrinks, the
/// filter is widened by the same factor, so that every stored pixel counts.
[[nodiscard]] inline axis_weights weights_of(int from, int to, int first, int count) {
    const double scale = static_cast<double>(from) / to;
    const double stretch = std::max(scale, 1.0);
    const double support = 2.0 * stretch;
    axis_weights result;
    result.most = static_cast<int>(std::ceil(support)) * 2 + 1;
    result.weights.assign(static_cast<std::size_t>(count) * static_cast<std::size_t>(result.most), 0);
    std::vector<double> exact(static_cast<std::size_t>(result.most));
    for (int i = 0; i != count; ++i) {
        const double centre = (first + i + 0.5) * scale;
        const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
        const int taken = std::min(static_cast<int>(centre + support + 0.5), from) - begin;
        double sum = 0.0;
        for (int k = 0; k != taken; ++k) {
            exact[static_cast<std::size_t>(k)] = cubic((k + begin - centre + 0.5) * (1.0 / stretch));
            sum += exact[static_cast<std::size_t>(k)];
        }
        std::int32_t* const weights =
            result.weights.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(result.most);
        for (int k = 0; k != taken; ++k) {
            const double weight = exact[static_cast<std::size_t>(k)] / sum * (1U << weight_bits);
            weights[k] = static_cast<std::int32_t>(weight < 0.0 ? weight - 0.5 : weight + 0.5);
        }
        result.first.push_back(begin);
        result.count.push_back(taken);
    }
    return result;
}

[[nodiscard]] inline std::uint8_t rounded_sample(std::int32_t sum) noexcept {
    return static_cast<std::uint8_t>(std::clamp(sum >> weight_bits, 0, 255));
}

} // namespace detail

/// The crop of a picture resized with antialiasing: bicubic (Keys, a = -1/2) in integer arithmetic, the filter
/// stretched where the picture shrinks. Bit for bit equal to Pillow's resize with BICUBIC and then crop, on every
/// machine; only what the crop needs is computed.
[[nodiscard]] inline io::picture resize(const io::picture& stored, const resized_part& part) {
    using detail::axis_weights;
    constexpr std::int32_t half = 1 << (detail::weight_bits - 1U);
    const auto channels = static_cast<std::size_t>(stored.channels);
    const axis_weights across = detail::weights_of(stored.width, part.width, part.left, part.crop_width);
    const axis_weights down = detail::weights_of(stored.height, part.height, part.top, part.crop_height);
    const auto width = static_cast<std::size_t>(part.crop_width);

    // Rows of the stored picture that the crop needs, resized horizontally.
    const int first_row = down.first.front();
    const int rows = down.first.back() + down.count.back() - first_row;
    const std::size_t line = width * channels;
    std::vector<std::uint8_t> narrow(static_cast<std::size_t>(rows) * line);
    std::uint8_t* out = narrow.data();
    for (int y = 0; y != rows; ++y) {
        const std::uint8_t* const row = stored.pixels.data() + static_cast<std::size_t>(first_row + y) *
                                                                   static_cast<std::size_t>(stored.width) * channels;
        for (std::size_t x = 0; x != width; ++x) {
            const std::int32_t* const weights = across.weights.data() + x * static_cast<std::size_t>(across.most);
            for (std::size_t k = 0; k != channels; ++k) {
                const std::uint8_t* from = row + static_cast<std::size_t>(across.first[x]) * channels + k;
                std::int32_t sum = half;
                for (int i = 0; i != across.count[x]; ++i, from += channels) { sum += *from * weights[i]; }
                *out++ = detail::rounded_sample(sum);
            }
        }
    }

    io::picture result{.width = part.crop_width,
                       .height = part.crop_height,
                       .channels = stored.channels,
                       .pixels = std::vector<std::uint8_t>(static_cast<std::size_t>(part.crop_height) * line)};
    out = result.pixels.data();
    std::vector<std::int32_t> sums(line);
    for (std::size_t y = 0; y != static_cast<std::size_t>(part.crop_height); ++y) {
        std::fill(sums.begin(), sums.end(), half);
        const std::int32_t* const weights = down.weights.data() + y * static_cast<std::size_t>(down.most);
        const std::uint8_t* from = narrow.data() + static_cast<std::size_t>(down.first[y] - first_row) * line;
        for (int i = 0; i != down.count[y]; ++i, from += line) {
            for (std::size_t x = 0; x != line; ++x) { sums[x] += from[x] * weights[i]; }
        }
        for (const std::int32_t sum : sums) { *out++ = detail::rounded_sample(sum); }
    }
    return result;
}

} // namespace pulse::data
