#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pulse/core/label.hpp>

namespace pulse::encode {

/// The structure of a diffusers AutoencoderKL; fields that its config.json also has are named as there.
///
/// Level i has block_out_channels[i] channels and half the height and width of level i - 1; zeros end the list. The
/// middle attends with one head of the last level's channels.
struct autoencoder_config {
    label name{};
    int sample_size{}; ///< height and width of pictures
    int in_channels{3};
    int out_channels{3};
    int latent_channels{4};
    std::array<int, 8> block_out_channels{};
    int layers_per_block{2};
    int norm_num_groups{32};
    double scaling_factor{0.18215}; ///< backbones see the posterior's latents times this
    /// Rows of a picture for which a layer makes its convolution's input at a time; more take more memory and give the
    /// same numbers.
    int strip_rows{64};

    [[nodiscard]] constexpr int levels() const noexcept {
        int count = 0;
        while (count != 8 && block_out_channels[static_cast<std::size_t>(count)] != 0) { ++count; }
        return count;
    }
    [[nodiscard]] constexpr int channels(int level) const noexcept {
        return block_out_channels[static_cast<std::size_t>(level)];
    }
    [[nodiscard]] constexpr int size(int level) const noexcept { return sample_size >> level; }
    [[nodiscard]] constexpr int latent_size() const noexcept { return size(levels() - 1); }
    /// Moments of a latent pixel: means, then logarithms of variances.
    [[nodiscard]] constexpr int moments() const noexcept { return 2 * latent_channels; }
    [[nodiscard]] constexpr bool operator==(const autoencoder_config&) const = default;
};

/// The autoencoder of Stable Diffusion (Rombach et al. 2022, KL-f8) for square pictures of `pixels` pixels a side;
/// SDXL's has other weights and the scaling factor 0.13025.
[[nodiscard]] constexpr autoencoder_config kl_f8(int pixels, double scaling_factor = 0.18215) noexcept {
    autoencoder_config c{};
    c.name = "kl_f8";
    c.sample_size = pixels;
    c.block_out_channels = {128, 256, 512, 512};
    c.scaling_factor = scaling_factor;
    return c;
}

/// What makes an autoencoder_config unusable.
enum class autoencoder_flaw : std::uint8_t { none, name, levels, sizes, halving, groups };

[[nodiscard]] constexpr autoencoder_flaw flaw_of(const autoencoder_config& c) noexcept {
    if (c.name.empty()) { return autoencoder_flaw::name; }
    const int levels = c.levels();
    if (levels == 0) { return autoencoder_flaw::levels; }
    for (int level = levels; level != 8; ++level) {
        if (c.channels(level) != 0) { return autoencoder_flaw::levels; }
    }
    if (c.sample_size <= 0 || c.in_channels <= 0 || c.out_channels <= 0 || c.latent_channels <= 0 ||
        c.layers_per_block <= 0 || c.norm_num_groups <= 0 || c.strip_rows <= 0 || !(c.scaling_factor > 0.0)) {
        return autoencoder_flaw::sizes;
    }
    if (c.sample_size % (1 << (levels - 1)) != 0) { return autoencoder_flaw::halving; }
    for (int level = 0; level != levels; ++level) {
        if (c.channels(level) < 0) { return autoencoder_flaw::sizes; }
        if (c.channels(level) % c.norm_num_groups != 0) { return autoencoder_flaw::groups; }
    }
    return autoencoder_flaw::none;
}

} // namespace pulse::encode
