#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size that the header of a JPEG says. Throws input_error when it is damaged or unknown to libjpeg.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size jpeg_size(std::span<const std::uint8_t> bytes);

/// The orientation that stands in front of its picture. Throws as jpeg_size does.
[[nodiscard]] PULSE_PICTURES_INLINE int jpeg_orientation(std::span<const std::uint8_t> bytes);

/// Decodes JPEG by libjpeg: baseline and progressive, grey, YCbCr, CMYK and YCCK. Damage that libjpeg can fill in is
/// told by the result. Throws input_error for other damage and when the file is cut or the picture too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_jpeg(std::span<const std::uint8_t> bytes,
                                                               const picture_limits& limits, bool);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/jpeg.ipp> // IWYU pragma: keep
#endif
