#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size in the header of a WebP. Throws input_error when the header is damaged.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size webp_size(std::span<const std::uint8_t> bytes);

/// The orientation, 1 to 8, of a WebP. Needs the whole file, since it is stored after the picture.
[[nodiscard]] PULSE_PICTURES_INLINE int webp_orientation(std::span<const std::uint8_t> bytes);

/// Decodes WebP with libwebp, lossy or lossless, alpha composited on white; of an animation, the first frame. Throws
/// input_error when the file is damaged, truncated or too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_webp(std::span<const std::uint8_t> bytes,
                                                               const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/webp.ipp> // IWYU pragma: keep
#endif
