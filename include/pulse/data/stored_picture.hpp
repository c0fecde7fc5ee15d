#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/io/png.hpp>

namespace pulse::data {

/// Limits on the size of a picture; more is refused before memory is allocated.
struct picture_limits {
    std::uint64_t most_pixels = std::uint64_t{1} << 27U;     ///< width x height
    std::uint64_t most_file_bytes = std::uint64_t{1} << 28U; ///< as stored
};

/// The size of a picture in pixels as its file stores it.
struct picture_size {
    std::uint32_t width{};
    std::uint32_t height{};

    [[nodiscard]] bool operator==(const picture_size&) const = default;
};

/// A picture as its file stores it, 3 channels (red, green, blue), and the orientation that turns it upright.
struct stored_picture {
    io::picture colours{};
    int orientation = 1;               ///< as EXIF counts them
    bool damaged = false;              ///< parts of it could not be read and are filled in
    std::vector<std::uint8_t> alpha{}; ///< of each pixel, if asked for; empty: all are opaque
};

namespace detail {

/// Throws input_error when a header's size is empty or beyond the limits.
inline void require_within(const picture_size& size, const picture_limits& limits) {
    constexpr std::uint64_t longest_side = 0x7FFFFFFF;
    const std::uint64_t width = size.width;
    const std::uint64_t height = size.height;
    const std::string text = std::to_string(width) + " x " + std::to_string(height) + " pixels";
    if (width == 0 || height == 0) { throw input_error(text + ": the picture is empty"); }
    if (width > longest_side || height > longest_side || width > limits.most_pixels / height) {
        throw input_error(text + " exceed the limit of " + std::to_string(limits.most_pixels) +
                          " in all: make the picture smaller");
    }
}

/// Allocates a picture of 3 channels. Throws input_error as require_within does.
[[nodiscard]] inline io::picture room_for(const picture_size& size, const picture_limits& limits) {
    require_within(size, limits);
    return {.width = static_cast<int>(size.width),
            .height = static_cast<int>(size.height),
            .channels = 3,
            .pixels = std::vector<std::uint8_t>(std::size_t{size.width} * size.height * 3)};
}

/// A sample of 8 bits composited on white.
[[nodiscard]] constexpr std::uint8_t on_white(unsigned sample, unsigned alpha) noexcept {
    return static_cast<std::uint8_t>((sample * alpha + 255U * (255U - alpha) + 127U) / 255U);
}

/// Composites pixels of red, green, blue and alpha on white.
inline void put_on_white(const std::vector<std::uint8_t>& with_alpha, stored_picture& out, bool keeps_alpha) {
    for (std::size_t i = 0; i != with_alpha.size() / 4; ++i) {
        const std::uint8_t alpha = with_alpha[4 * i + 3];
        for (std::size_t k = 0; k != 3; ++k) { out.colours.pixels[3 * i + k] = on_white(with_alpha[4 * i + k], alpha); }
        if (keeps_alpha) { out.alpha.push_back(alpha); }
    }
}

} // namespace detail

} // namespace pulse::data
