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

/// The name of picture `i`'s conditioning image in messages: its path in quotes.
[[nodiscard]] PULSE_PICTURES_INLINE std::string conditioning_name(const picture_index& index, std::uint32_t i);

/// Throws input_error naming the first picture without a conditioning image and the number of such pictures.
PULSE_PICTURES_INLINE void require_conditioning(const picture_index& index);

/// Takes conditioning images from `folder` instead of from metadata: a picture's image has the same path below `folder`
/// as the picture has below its own folder, whatever the extension.
///
/// Throws input_error, and leaves the index unchanged, for a picture with no such image or two, for shards, and for a
/// folder that cannot be read.
PULSE_PICTURES_INLINE void take_conditioning(picture_index& index, const std::filesystem::path& folder);

/// Checks the headers of all conditioning images (check_pictures). `pictures` has the upright size of each picture, or
/// 0 x 0 where it cannot be read. Throws input_error for a picture without an image, and naming an image that cannot be
/// read or whose shape differs from its picture's.
PULSE_PICTURES_INLINE void check_conditioning(const picture_index& index, std::span<const picture_size> pictures);

/// The conditioning image of picture `i`, cropped and mirrored as the sample at a global position sees the picture:
/// size.height x size.width x 3, 0 black to 1 white.
///
/// `original` is the picture's upright stored size (picture_sample::original_height and original_width); `size` is a
/// whole multiple of the size in which the picture is seen (captioned_pictures::size_of). Throws input_error naming a
/// conditioning image that cannot be read or whose shape differs from the picture's, and error for another `size`.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<float> conditioning_of(const captioned_pictures& of, std::uint32_t i,
                                                                       std::uint64_t position, const extent& original,
                                                                       const extent& size);

/// The centre of a conditioning image that belongs to no picture, in the form that conditioning_of returns. Throws
/// input_error naming it.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<float> read_conditioning(const std::filesystem::path& path,
                                                                         const extent& size);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/conditioning.ipp> // IWYU pragma: keep
#endif
