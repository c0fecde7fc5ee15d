#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/onednn/picture_operations.hpp>
#include <pulse/train/random.hpp>

namespace pulse::frozen {

/// Latents of pictures, drawn from their posteriors on the host.
template <class Networks>
class posterior_source {
public:
    static constexpr auto config = Networks::picture_config;
    static constexpr auto pixels = static_cast<std::size_t>(config.latent_size() * config.latent_size());
    static constexpr std::size_t elements = pixels * static_cast<std::size_t>(config.latent_channels);

    posterior_source(int threads, std::uint64_t seed) :
        math_{threads}, random_{seed, train::random_stream::posterior} {}

    /// Where the moments of a picture belong.
    [[nodiscard]] std::span<float> moments() noexcept { return moments_; }
    /// Latents [height][width][channels] of moments(), by numbers that are a function of (seed, position).
    void draw(std::uint64_t position, std::span<float> latents) {
        random_.fill_normal(position * elements, noise_);
        math_.posterior(static_cast<std::int64_t>(pixels), config.latent_channels,
                        static_cast<float>(config.scaling_factor), moments_.data(), noise_.data(), latents.data());
    }

private:
    host::picture_operations math_;
    train::random_source random_;
    std::vector<float> moments_ = std::vector<float>(2 * elements);
    std::vector<float> noise_ = std::vector<float>(elements);
};

} // namespace pulse::frozen
