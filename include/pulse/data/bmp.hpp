#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size in the header of a BMP. Throws input_error when the header is damaged or of an unsupported kind.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size bmp_size(std::span<const std::uint8_t> bytes);

/// Decodes a Windows or OS/2 BMP: 1, 4, 8, 16, 24 and 32 bits, RLE4, RLE8 and bit masks, alpha composited on white.
/// Throws input_error when the file is damaged, truncated, too large or of another kind.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_bmp(std::span<const std::uint8_t> bytes,
                                                              const picture_limits& limits, bool keeps_alpha);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/bmp.ipp> // IWYU pragma: keep
#endif
