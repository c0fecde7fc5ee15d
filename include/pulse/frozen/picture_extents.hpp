#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// Extents of a run's pictures, in pixels, and of what the backbone reads of them.
struct picture_extents {
    extent pixels{};
    extent latents{};

    [[nodiscard]] constexpr bool operator==(const picture_extents&) const = default;
};

/// Extents of pictures of `pixels`; none: the size of the model's networks. Throws input_error naming the nearest sizes
/// when the model cannot read such pictures, and `word` where it would have to resample positions.
template <class Model>
[[nodiscard]] constexpr picture_extents extents_of(const extent& pixels, bool resample = false,
                                                   std::string_view word = "resample_positions") {
    constexpr auto config = networks_of<Model>::picture_config;
    constexpr int pixels_each = config.sample_size / config.latent_size();
    if (pixels == extent{}) { return {{config.sample_size, config.sample_size}, extent_of<Model>()}; }
    require_steps<Model>(pixels, pixels_each);
    if (!resample) { require_own_positions<Model>(pixels, word, pixels_each); }
    return {pixels, {pixels.height / pixels_each, pixels.width / pixels_each}};
}

/// The largest latents of several sizes.
[[nodiscard]] inline extent greatest_latents(const std::vector<picture_extents>& sizes) {
    return std::ranges::max_element(
               sizes, {},
               [](const picture_extents& one) { return std::int64_t{one.latents.height} * one.latents.width; })
        ->latents;
}

/// Throws input_error naming the option `word` unless the plan is for pictures of these sizes.
template <class Model>
void require_extents(const planned& made, const std::vector<picture_extents>& sizes, const std::string& word) {
    std::size_t n = 0;
    bool fit = made.extents() == sizes.size();
    made.each_extent([&](const extent& to, const auto&...) {
        fit = fit && resize<Model>(to) == resize<Model>(sizes[n].latents);
        ++n;
    });
    if (!fit) { throw input_error{word + ": the plan was made for pictures of other sizes"}; }
}

} // namespace pulse::frozen
