#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/decode.hpp>
#include <pulse/io/png.hpp>
#include <pulse/model/extent.hpp>

namespace pulse::data {

/// Alpha of picture `i` as the sample at a global position sees it: size.height x size.width values, 0 transparent to 1
/// opaque, each the mean over a square of pixels; 1 everywhere where the picture has no alpha.
///
/// `size` is the size in which the picture is seen (captioned_pictures::size_of), or that size divided by the side of a
/// square. Throws input_error naming a picture that cannot be read, and error for any other size.
[[nodiscard]] inline std::vector<float> alpha_of(const captioned_pictures& of, std::uint32_t i, std::uint64_t position,
                                                 const extent& size) {
    const extent seen = of.size_of(i);
    const int side = size.height < 1 ? 0 : seen.height / size.height;
    if (side < 1 || seen != extent{side * size.height, side * size.width}) {
        throw error("pictures: the size of alpha must divide that of the pictures");
    }
    const auto height = static_cast<std::size_t>(size.height);
    const auto width = static_cast<std::size_t>(size.width);
    const picture_limits& limits = of.options().limits;
    const std::optional<io::picture> stored =
        decode_alpha(of.index().stored_bytes(i, limits.most_file_bytes), of.index().name(i), limits);
    if (!stored) { return std::vector<float>(height * width, 1.0F); }
    const std::vector<float> pixels = of.seen_over(i, position, *stored, {stored->height, stored->width});
    const auto each = static_cast<std::size_t>(side);
    std::vector<float> means(height * width);
    for (std::size_t at = 0; at != pixels.size(); ++at) {
        const std::size_t y = at / (width * each);
        const std::size_t x = at % (width * each);
        means[y / each * width + x / each] += pixels[at];
    }
    for (float& mean : means) { mean /= static_cast<float>(side * side); }
    return means;
}

} // namespace pulse::data
