#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// Sizes of about one area and of different shapes, of which each picture is seen in that nearest to its own shape.
struct bucket_options {
    /// Its pixels are the most that a bucket has; none: there are no buckets.
    extent area{};
    /// Heights and widths are multiples of it.
    int step = 64;
    int least = 0; ///< height or width; 0: half of the area's side
    int most = 0;  ///< height or width; 0: twice the area's side

    [[nodiscard]] bool operator==(const bucket_options&) const = default;
};

/// The options with the sides that they leave open. Throws input_error naming the one that is out of range.
[[nodiscard]] PULSE_PICTURES_INLINE bucket_options with_sides(bucket_options o);

/// The sizes that the options describe: of each height from the least to the most the width that fills the area, and
/// the other way round, and the square; by height, then width. Throws input_error as with_sides, or where there are
/// none.
///
/// Source: kohya-ss/sd-scripts, `make_bucket_resolutions`, whose rule this is; SDXL was trained on such sizes (Podell
/// et al. 2023, section 2.3 and appendix I).
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<extent> bucket_sizes(const bucket_options& options);

/// Which of the sizes has the shape nearest to a picture's: the quotient of both ratios is nearest to 1. Of equally
/// near ones the larger, and then the first.
[[nodiscard]] PULSE_PICTURES_INLINE std::size_t nearest_bucket(std::span<const extent> sizes,
                                                               const picture_size& picture);

/// The sizes in which pictures are seen, and which of these each has; none: all have one.
struct picture_buckets {
    std::vector<extent> sizes{};
    std::vector<std::uint32_t> of_picture{}; ///< sizes.size(): it cannot be read, and stands nowhere

    [[nodiscard]] bool operator==(const picture_buckets&) const = default;
};

/// Puts pictures of these sizes, upright, into the nearest buckets; 0 x 0 is one that cannot be read. Buckets without
/// pictures are left out. Throws input_error where all are.
[[nodiscard]] PULSE_PICTURES_INLINE picture_buckets sort_into_buckets(std::span<const picture_size> pictures,
                                                                      std::span<const extent> sizes);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/aspect_buckets.ipp> // IWYU pragma: keep
#endif
