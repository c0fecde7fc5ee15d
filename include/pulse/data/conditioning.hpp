#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// How messages call the conditioning image of picture `i`.
[[nodiscard]] PULSE_PICTURES_INLINE std::string conditioning_name(const picture_index& index, std::uint32_t i);

/// Throws input_error naming the first picture without a conditioning image, and saying how many have none.
PULSE_PICTURES_INLINE void require_conditioning(const picture_index& index);

/// Instead of what metadata say, the conditioning image of a picture is the one in `folder` whose path below it is the
/// picture's below its own, whatever the ending.
///
/// Throws input_error, and leaves the index as it is, for a picture that has none or that two could be meant for, for
/// shards, and for a folder that cannot be read.
PULSE_PICTURES_INLINE void take_conditioning(picture_index& index, const std::filesystem::path& folder);

/// Looks at the headers of all conditioning images (check_pictures): throws input_error naming one that cannot be read,
/// or which is not of the shape of its picture, of which `pictures` has the size, upright, or 0 x 0 where it cannot be
/// read.
PULSE_PICTURES_INLINE void check_conditioning(const picture_index& index, std::span<const picture_size> pictures);

/// The conditioning image of picture `i`, cropped and mirrored as the sample at a global position sees the picture:
/// size.height x size.width x 3, 0 black to 1 white.
///
/// `original` is the picture's upright stored size (picture_sample::original_height and original_width), and `size` a
/// whole multiple of that in which the picture is seen (captioned_pictures::size_of). Throws input_error naming the
/// conditioning image where it cannot be read or its shape is another than the picture's, and error for a size that is
/// no multiple.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<float> conditioning_of(const captioned_pictures& of, std::uint32_t i,
                                                                       std::uint64_t position, const extent& original,
                                                                       const extent& size);

/// A conditioning image of its own, of which the middle is seen, as conditioning_of has those of pictures. Throws
/// input_error naming it.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<float> read_conditioning(const std::filesystem::path& path,
                                                                         const extent& size);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/conditioning.ipp> // IWYU pragma: keep
#endif
