#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/io/png.hpp>

namespace pulse::data {

/// What a picture may cost; more is refused before memory is taken.
struct picture_limits {
    std::uint64_t most_pixels = std::uint64_t{1} << 27U;     ///< width x height
    std::uint64_t most_file_bytes = std::uint64_t{1} << 28U; ///< as it is stored
};

/// A picture as its file stores it, 3 channels (red, green, blue), and how it is turned upright.
struct stored_picture {
    io::picture colours{};
    int orientation = 1; ///< of EXIF
};

namespace detail {

/// Room for a picture of 3 channels. Throws input_error when its header's size is absurd.
[[nodiscard]] inline io::picture room_for(std::uint64_t width, std::uint64_t height, const picture_limits& limits) {
    constexpr std::uint64_t longest_side = 0x7FFFFFFF;
    if (width == 0 || height == 0 || width > longest_side || height > longest_side ||
        width > limits.most_pixels / height) {
        throw input_error(std::to_string(width) + " x " + std::to_string(height) + " pixels, where 1 to " +
                          std::to_string(limits.most_pixels) + " are read");
    }
    return {.width = static_cast<int>(width),
            .height = static_cast<int>(height),
            .channels = 3,
            .pixels = std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * 3))};
}

/// A sample of 8 bits in front of white.
[[nodiscard]] constexpr std::uint8_t on_white(unsigned sample, unsigned alpha) noexcept {
    return static_cast<std::uint8_t>((sample * alpha + 255U * (255U - alpha) + 127U) / 255U);
}

/// Red, green, blue and alpha of each pixel, before white.
inline void put_on_white(const std::vector<std::uint8_t>& with_alpha, io::picture& out) {
    for (std::size_t i = 0; i != with_alpha.size() / 4; ++i) {
        for (std::size_t k = 0; k != 3; ++k) {
            out.pixels[3 * i + k] = on_white(with_alpha[4 * i + k], with_alpha[4 * i + 3]);
        }
    }
}

} // namespace detail

} // namespace pulse::data
