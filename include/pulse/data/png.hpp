#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size that the header of a PNG says. Throws input_error when it is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size png_size(std::span<const std::uint8_t> bytes);

/// The orientation that stands in front of its picture, where most programs write it. Throws as png_size does.
[[nodiscard]] PULSE_PICTURES_INLINE int png_orientation(std::span<const std::uint8_t> bytes);

/// Decodes PNG by libpng: all colour types and depths, interlaced or not, alpha before white; 16 bits are rounded to 8.
/// Gamma and profiles are ignored, as Pillow does. Throws input_error when it is damaged, cut or too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_png(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/png.ipp> // IWYU pragma: keep
#endif
