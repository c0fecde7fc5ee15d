#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size that the header of a GIF says. Throws input_error when it is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size gif_size(std::span<const std::uint8_t> bytes);

/// Decodes the first frame of a GIF on its canvas, interlaced or not, before white. Throws input_error when it is
/// damaged, cut or too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_gif(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/gif.ipp> // IWYU pragma: keep
#endif
