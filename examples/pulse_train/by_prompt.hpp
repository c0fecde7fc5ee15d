#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/encode/chain.hpp>

#include "arguments.hpp"
#include "drawing.hpp"
#include "frozen.hpp"
#include "frozen_encoders.hpp"
#include "pictures.hpp"
#include "run_inputs.hpp"

namespace pulse_train {

/// Pictures by --prompt, on the host: its texts are encoded and latents decoded by the networks of --from.
template <class Model, class Math>
class by_prompt {
    using frozen = frozen_networks<Model>;
    using decoder = pulse::encode::chain<typename frozen::decoder, Math>;

public:
    /// Of the pictures.
    static constexpr sample_shape shape{frozen::picture_config.out_channels, frozen::picture_config.sample_size,
                                        frozen::picture_config.sample_size};

    /// Throws input_error naming the option, the file and the key or the tensors.
    explicit by_prompt(const arguments& a) : args_{a} {
        try {
            texts_ = encoded(a);
            static_cast<void>(pulse::diffusers::open_autoencoder<frozen::picture_config>(a.from));
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--prompt: "} + e.what()}; }
    }

    /// What the backbone reads of the prompts.
    [[nodiscard]] const image_texts& texts() const noexcept { return texts_; }

    /// Pictures of latents, one after another.
    [[nodiscard]] std::vector<float> decode(std::span<const float> latents) const {
        constexpr auto config = frozen::picture_config;
        Math math{args_.threads};
        decoder network{math};
        fill(network, math, pulse::diffusers::open_autoencoder<config>(args_.from));
        constexpr auto each =
            static_cast<std::size_t>(config.latent_size() * config.latent_size() * config.latent_channels);
        std::vector<float> pictures(latents.size() / each * shape.elements());
        std::vector<float> one(each);
        for (std::size_t i = 0; i != latents.size() / each; ++i) {
            for (std::size_t e = 0; e != each; ++e) {
                one[e] = latents[i * each + e] / static_cast<float>(config.scaling_factor);
            }
            network.run(1, one.data(), pictures.data() + i * shape.elements());
        }
        return pictures;
    }

private:
    [[nodiscard]] static image_texts encoded(const arguments& a) {
        using encoder = frozen_text<frozen, Math>;
        const caption_ids ids_of{std::filesystem::path{a.from} / "tokenizer", frozen::text::tokens,
                                 frozen::text::vocabulary};
        Math math{a.threads};
        encoder network{a.from, math};
        image_texts texts;
        texts.elements = encoder::elements;
        texts.guidance = a.guidance;
        texts.states.resize(a.prompts.size() * encoder::elements);
        for (std::size_t i = 0; i != a.prompts.size(); ++i) {
            network.run(ids_of(a.prompts[i], "prompt " + std::to_string(i + 1)).ids,
                        std::span{texts.states}.subspan(i * encoder::elements, encoder::elements));
        }
        texts.other.resize(encoder::elements);
        network.run(ids_of(a.negative, "the negative prompt").ids, texts.other);
        return texts;
    }

    const arguments& args_;
    image_texts texts_{};
};

} // namespace pulse_train
