#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size that the header of a BMP says. Throws input_error when it is damaged or of a kind that is not read.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size bmp_size(std::span<const std::uint8_t> bytes);

/// Decodes a BMP of Windows or OS/2: 1, 4, 8, 16, 24 and 32 bits, runs of 4 and 8, masks, alpha before white. Throws
/// input_error when it is damaged, cut, too large or of another kind.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_bmp(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/bmp.ipp> // IWYU pragma: keep
#endif
