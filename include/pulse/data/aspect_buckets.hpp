#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/data/stored_picture.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// Sizes of about one area and different shapes; each picture is seen in the size nearest to its own shape.
struct bucket_options {
    /// Its number of pixels is the most that a bucket has; left at 0 x 0: no buckets.
    extent area{};
    /// Heights and widths are multiples of this.
    int step = 64;
    int least = 0; ///< height or width; 0: half of the area's side
    int most = 0;  ///< height or width; 0: twice the area's side

    [[nodiscard]] bool operator==(const bucket_options&) const = default;
};

/// Fills in the sides that the options leave at 0. Throws input_error naming an option that is out of range.
[[nodiscard]] PULSE_PICTURES_INLINE bucket_options with_sides(bucket_options o);

/// The sizes that the options describe, sorted by height, then width: for each height from the least to the most the
/// width that fills the area, the same with height and width swapped, and the square. Throws input_error as with_sides
/// does, or when no size fits.
///
/// Source: kohya-ss/sd-scripts, `make_bucket_resolutions`, whose rule this is; SDXL was trained on such sizes (Podell
/// et al. 2023, section 2.3 and appendix I).
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<extent> bucket_sizes(const bucket_options& options);

/// Index of the size whose shape is nearest to the picture's: the quotient of the two aspect ratios is nearest to 1.
/// Ties go to the larger size, then to the first.
[[nodiscard]] PULSE_PICTURES_INLINE std::size_t nearest_bucket(std::span<const extent> sizes,
                                                               const picture_size& picture);

/// The sizes in which pictures are seen, and the bucket of each picture; empty: all pictures have one size.
struct picture_buckets {
    std::vector<extent> sizes{};
    std::vector<std::uint32_t> of_picture{}; ///< sizes.size(): the picture cannot be read and is in no bucket

    [[nodiscard]] bool operator==(const picture_buckets&) const = default;
};

/// Sorts pictures of these upright sizes into the nearest buckets; 0 x 0 stands for one that cannot be read. Buckets
/// without pictures are left out. Throws input_error when no picture can be read.
[[nodiscard]] PULSE_PICTURES_INLINE picture_buckets sort_into_buckets(std::span<const picture_size> pictures,
                                                                      std::span<const extent> sizes);

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/aspect_buckets.ipp> // IWYU pragma: keep
#endif
