#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>

namespace pulse::io {

/// A picture of 8-bit samples, row by row, channels last: 1 (grey) or 3 (red, green, blue) channels.
struct picture {
    int width{};
    int height{};
    int channels{};
    std::vector<std::uint8_t> pixels{};
};

/// The bytes of a PNG file. Throws input_error when sizes and pixels do not agree.
///
/// Written on zlib, which the gzip reader needs anyway: a PNG is three chunks around one zlib stream (W3C PNG
/// specification, sections 5, 9 and 11).
[[nodiscard]] PULSE_INLINE std::string encode_png(const picture& image);

/// Writes a PNG file, atomically. Throws input_error naming the file.
PULSE_INLINE void write_png(const std::filesystem::path& path, const picture& image);

/// How a set of images is laid out in one picture.
struct grid_options {
    int columns = 8;
    int scale = 2;                ///< pixels of the picture per pixel of an image, along each axis
    int gap = 2;                  ///< pixels between images and around them
    std::uint8_t background = 40; ///< brightness of the gaps
};

/// Lays images (count x height x width x channels floats, -1 black to 1 white) out in rows.
///
/// Throws input_error when sizes or options are out of range.
[[nodiscard]] PULSE_INLINE picture image_grid(std::span<const float> images, int height, int width, int channels,
                                              const grid_options& options = {});

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/png.ipp> // IWYU pragma: keep
#endif
