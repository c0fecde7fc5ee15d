#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The canvas size of a GIF, enlarged to hold its first frame. Throws input_error when the header is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size gif_size(std::span<const std::uint8_t> bytes);

/// Decodes the first frame of a GIF on its canvas, interlaced or not, composited on white. Throws input_error when the
/// file is damaged, truncated or too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_gif(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/gif.ipp> // IWYU pragma: keep
#endif
