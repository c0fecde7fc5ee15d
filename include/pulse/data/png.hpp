#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size in the header of a PNG. Throws input_error when the header is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size png_size(std::span<const std::uint8_t> bytes);

/// The orientation, 1 to 8, stored before the picture, where most programs write it. Throws as png_size does.
[[nodiscard]] PULSE_PICTURES_INLINE int png_orientation(std::span<const std::uint8_t> bytes);

/// Decodes PNG with libpng: all colour types and depths, interlaced or not, alpha composited on white, 16 bits rounded
/// to 8. Gamma and profiles are ignored, as in Pillow. Throws input_error when the file is damaged, truncated or too
/// large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_png(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/png.ipp> // IWYU pragma: keep
#endif
