#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/model/extent.hpp>
#include <pulse/onednn/picture_operations.hpp>
#include <pulse/train/random.hpp>

namespace pulse::frozen {

/// Latents of pictures, drawn from their posteriors on the host.
template <class Networks>
class posterior_source {
public:
    static constexpr auto config = Networks::picture_config;

    /// Elements of a picture's latents.
    [[nodiscard]] static constexpr std::size_t elements_of(const extent& latents) noexcept {
        return static_cast<std::size_t>(latents.height) * static_cast<std::size_t>(latents.width) *
               static_cast<std::size_t>(config.latent_channels);
    }

    /// For pictures of at most these latents.
    posterior_source(const extent& greatest, int threads, std::uint64_t seed) :
        math_{threads}, random_{seed, train::random_stream::posterior}, stride_{elements_of(greatest)} {
        resize(greatest);
    }
    /// Sets the latents' extent for the next pictures.
    void resize(const extent& latents) {
        pixels_ = std::int64_t{latents.height} * latents.width;
        moments_.resize(2 * elements_of(latents));
        noise_.resize(elements_of(latents));
    }

    [[nodiscard]] std::size_t elements() const noexcept { return noise_.size(); }

    /// Buffer for the moments of a picture.
    [[nodiscard]] std::span<float> moments() noexcept { return moments_; }
    /// Draws latents [height][width][channels] from moments(), with noise that is a function of (seed, position).
    void draw(std::uint64_t position, std::span<float> latents) {
        random_.fill_normal(position * stride_, noise_);
        math_.posterior(pixels_, config.latent_channels, static_cast<float>(config.scaling_factor), moments_.data(),
                        noise_.data(), latents.data());
    }

private:
    onednn::picture_operations math_;
    train::random_source random_;
    std::size_t stride_; ///< random numbers per position, so that no two share any
    std::int64_t pixels_{};
    std::vector<float> moments_{};
    std::vector<float> noise_{};
};

} // namespace pulse::frozen
