#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/encode/text_encoder.hpp>
#include <pulse/encode/text_facts.hpp>
#include <pulse/model/parameter.hpp>
#include <pulse/train/random.hpp>

namespace pulse_train {

/// A network that runs sample by sample with the weights of a folder's component.
template <class Network, class Math>
void fill(pulse::encode::chain<Network, Math>& network, Math& math, const pulse::diffusers::weights& from) {
    std::size_t at = 0;
    for (const pulse::parameter& p : pulse::diffusers::model_parameters<Network>()) {
        const auto n = static_cast<std::size_t>(p.elements());
        from.read(p, 0, network.parameters().subspan(at, n));
        at += n;
    }
    math.weights_changed();
}

/// The text encoder of a folder, one text at a time: what a text gives depends on no other.
template <class Frozen, class Math>
class frozen_text {
public:
    using network = typename Frozen::text;
    static constexpr std::size_t elements = static_cast<std::size_t>(network::states::elements);
    static constexpr std::int64_t bytes = pulse::encode::text_encoder<network, Math>::bytes(1);

    frozen_text(const std::filesystem::path& folder, Math& math) : encoder_{math, 1} {
        const pulse::diffusers::weights from = pulse::diffusers::open_text_encoder<Frozen::text_config>(folder);
        encoder_.load([&](const pulse::parameter& p, std::span<float> values) { from.read(p, 0, values); });
    }

    /// Writes the text's states [tokens][features].
    void run(std::span<const std::int32_t> ids, std::span<float> states) {
        const auto facts = pulse::encode::text_facts_of<network, typename Math::accumulator>(1, ids);
        encoder_.run(1, facts.data(), states.data());
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept { return encoder_.used_bytes(); }

private:
    pulse::encode::text_encoder<network, Math> encoder_;
};

/// The encoder of pictures of a folder.
template <class Frozen, class Math>
class frozen_pictures {
public:
    using network = pulse::encode::chain<typename Frozen::encoder, Math>;
    static constexpr std::int64_t bytes = network::bytes;

    frozen_pictures(const std::filesystem::path& folder, Math& math) : encoder_{math} {
        fill(encoder_, math, pulse::diffusers::open_autoencoder<Frozen::picture_config>(folder));
    }

    /// Writes the moments [height][width][2 channels] of the posterior of a picture [size][size][channels].
    void run(std::span<const float> picture, std::span<float> moments) {
        encoder_.run(1, picture.data(), moments.data());
    }
    [[nodiscard]] std::int64_t used_bytes() const noexcept { return encoder_.used_bytes(); }

private:
    network encoder_;
};

/// Latents of pictures, drawn from their posteriors.
template <class Frozen, class Math>
class posterior_source {
public:
    static constexpr auto config = Frozen::picture_config;
    static constexpr auto pixels = static_cast<std::size_t>(config.latent_size() * config.latent_size());
    static constexpr std::size_t elements = pixels * static_cast<std::size_t>(config.latent_channels);

    posterior_source(Math& math, std::uint64_t seed) :
        math_{math}, random_{seed, pulse::train::random_stream::posterior} {}

    /// Where the moments of a picture belong.
    [[nodiscard]] std::span<float> moments() noexcept { return moments_; }
    /// Latents [height][width][channels] of moments(), by numbers that are a function of (seed, position).
    void draw(std::uint64_t position, std::span<float> latents) {
        random_.fill_normal(position * elements, noise_);
        math_.posterior(static_cast<std::int64_t>(pixels), config.latent_channels,
                        static_cast<float>(config.scaling_factor), moments_.data(), noise_.data(), latents.data());
    }

private:
    Math& math_;
    pulse::train::random_source random_;
    std::vector<float> moments_ = std::vector<float>(2 * elements);
    std::vector<float> noise_ = std::vector<float>(elements);
};

} // namespace pulse_train
