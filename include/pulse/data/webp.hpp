#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size that the header of a WebP says. Throws input_error when it is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size webp_size(std::span<const std::uint8_t> bytes);

/// The orientation of a WebP, of which all is needed: the data stand behind the picture.
[[nodiscard]] PULSE_PICTURES_INLINE int webp_orientation(std::span<const std::uint8_t> bytes);

/// Decodes WebP by libwebp, with loss or without, alpha before white; of an animation the first frame. Throws
/// input_error when it is damaged, cut or too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_webp(std::span<const std::uint8_t> bytes,
                                                               const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/webp.ipp> // IWYU pragma: keep
#endif
