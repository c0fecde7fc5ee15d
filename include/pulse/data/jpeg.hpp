#pragma once

#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>

namespace pulse::data {

/// The size in the header of a JPEG. Throws input_error when the header is damaged or unknown to libjpeg.
[[nodiscard]] PULSE_PICTURES_INLINE picture_size jpeg_size(std::span<const std::uint8_t> bytes);

/// The orientation, 1 to 8, in the markers before the picture. Throws as jpeg_size does.
[[nodiscard]] PULSE_PICTURES_INLINE int jpeg_orientation(std::span<const std::uint8_t> bytes);

/// Decodes JPEG with libjpeg: baseline and progressive, grey, YCbCr, CMYK and YCCK. The result says whether libjpeg
/// filled in damage. Throws input_error for other damage, a truncated file and a picture that is too large.
[[nodiscard]] PULSE_PICTURES_INLINE stored_picture decode_jpeg(std::span<const std::uint8_t> bytes,
                                                               const picture_limits& limits, bool);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/jpeg.ipp> // IWYU pragma: keep
#endif
