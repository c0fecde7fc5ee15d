#pragma once

#include <string>

#include <pulse/model/extent.hpp>
#include <pulse/model/resize.hpp>
#include <pulse/zoo/frozen_networks.hpp>

namespace pulse::frozen {

/// Height and width of a run's pictures, and of what the backbone reads of them.
struct picture_extents {
    extent pixels{};
    extent latents{};

    [[nodiscard]] constexpr bool operator==(const picture_extents&) const = default;
};

/// Those of pictures of some pixels; none: as many as the model's networks are made for. Throws input_error naming the
/// sizes beside them when the model cannot read such pictures.
template <class Model>
[[nodiscard]] constexpr picture_extents extents_of(const extent& pixels) {
    constexpr auto config = networks_of<Model>::picture_config;
    constexpr int pixels_each = config.sample_size / config.latent_size();
    if (pixels == extent{}) { return {{config.sample_size, config.sample_size}, extent_of<Model>()}; }
    require_steps<Model>(pixels, pixels_each);
    return {pixels, {pixels.height / pixels_each, pixels.width / pixels_each}};
}

} // namespace pulse::frozen
