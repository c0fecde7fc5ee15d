#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// The second input of a cascade's second backbone: the image of the smaller backbone, with noise added, enlarged.
///
/// Source: Ho et al., "Cascaded Diffusion Models" (arXiv 2106.15282); the noise is its Gaussian conditioning
/// augmentation, section 4.
struct enlargement {
    int times{2};   ///< scale of the image to the smaller one, in rows and in columns
    int width{};    ///< of the image, in pixels
    double noise{}; ///< factor of the normal number added to each element of the smaller image
};

namespace detail {

/// Throws input_error naming what is out of range for images of `elements` elements.
inline void require_in_range(const enlargement& how, std::size_t elements, std::size_t channels) {
    if (how.times < 2) { throw input_error{"enlargement: times must be at least 2"}; }
    if (!(how.noise >= 0)) { throw input_error{"enlargement: noise must be at least 0"}; }
    if (how.width < 1) { throw input_error{"enlargement: width must be at least 1"}; }
    const auto times = static_cast<std::size_t>(how.times);
    const std::size_t row = static_cast<std::size_t>(how.width) * channels;
    if (elements % row != 0) {
        throw input_error{"enlargement: an image of " + std::to_string(elements / channels) +
                          " pixels cannot be split into rows of width " + std::to_string(how.width)};
    }
    if (how.width % how.times != 0 || elements / row % times != 0) {
        throw input_error{"enlargement: an image of " + std::to_string(elements / row) + "x" +
                          std::to_string(how.width) + " pixels cannot be split into " + std::to_string(how.times) +
                          "x" + std::to_string(how.times) + " squares"};
    }
}

/// Pixels of an image per pixel of the smaller one.
[[nodiscard]] constexpr std::size_t square_of(const enlargement& how) noexcept {
    return static_cast<std::size_t>(how.times) * static_cast<std::size_t>(how.times);
}

/// The element of the smaller image that covers element `e` of an image.
[[nodiscard]] constexpr std::size_t small_element(const enlargement& how, std::size_t channels,
                                                  std::size_t e) noexcept {
    const auto width = static_cast<std::size_t>(how.width);
    const auto times = static_cast<std::size_t>(how.times);
    const std::size_t pixel = e / channels;
    return (pixel / width / times * (width / times) + pixel % width / times) * channels + e % channels;
}

/// small = mean of each square of the image.
inline void shrink(const enlargement& how, std::size_t channels, std::span<const float> image, std::span<float> small) {
    for (float& value : small) { value = 0; }
    for (std::size_t e = 0; e != image.size(); ++e) { small[small_element(how, channels, e)] += image[e]; }
    for (float& value : small) { value /= static_cast<float>(square_of(how)); }
}

/// image = the smaller one with noise, enlarged. `noise` has the smaller image's size and receives its noise, which
/// starts at index `first` of the seed's stream.
inline void enlarge(const enlargement& how, std::size_t channels, std::uint64_t seed, std::uint64_t first,
                    std::span<const float> small, std::span<float> noise, std::span<float> image) {
    random_source{seed, random_stream::enlargement}.fill_normal(first, noise);
    for (std::size_t e = 0; e != image.size(); ++e) {
        const std::size_t from = small_element(how, channels, e);
        image[e] = small[from] + static_cast<float>(how.noise) * noise[from];
    }
}

} // namespace detail

} // namespace pulse::train
