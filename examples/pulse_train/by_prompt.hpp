#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/encode/chain.hpp>
#include <pulse/model/condition.hpp>
#include <pulse/runtime/conditions.hpp>

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
    using encoder = frozen_text<frozen, Math>;
    using decoder = pulse::encode::chain<typename frozen::decoder, Math>;

public:
    /// Of the pictures.
    static constexpr sample_shape shape{frozen::picture_config.out_channels, frozen::picture_config.sample_size,
                                        frozen::picture_config.sample_size};

    /// Throws input_error naming the option, the file and the key or the tensors.
    explicit by_prompt(const arguments& a) : args_{a} {
        try {
            encode();
            static_cast<void>(pulse::diffusers::open_autoencoder<frozen::picture_config>(a.from));
        } catch (const pulse::input_error& e) { throw pulse::input_error{std::string{"--prompt: "} + e.what()}; }
    }

    /// What the backbone reads of the prompts, in turn, and of the negative one, as long as this lives.
    [[nodiscard]] image_conditions conditions() const {
        constexpr pulse::condition_set wanted = pulse::conditions_read_by<Model>();
        static_assert(wanted.all().size() == 1 && encoder::elements == static_cast<std::size_t>(wanted.text_elements()),
                      "the text encoder gives what the backbone reads");
        return {.wanted = {wanted,
                           [this](std::uint64_t image, std::size_t, std::span<float> to) {
                               const std::size_t prompt = image % args_.prompts.size();
                               std::ranges::copy(std::span{states_}.subspan(prompt * to.size(), to.size()), to.begin());
                           }},
                .other = {wanted, [this](std::uint64_t, std::size_t,
                                         std::span<float> to) { std::ranges::copy(negative_, to.begin()); }},
                .guidance = args_.guidance};
    }

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
    void encode() {
        const caption_ids ids_of{std::filesystem::path{args_.from} / "tokenizer", frozen::text::tokens,
                                 frozen::text::vocabulary};
        Math math{args_.threads};
        encoder network{args_.from, math};
        states_.resize(args_.prompts.size() * encoder::elements);
        for (std::size_t i = 0; i != args_.prompts.size(); ++i) {
            network.run(ids_of(args_.prompts[i], "prompt " + std::to_string(i + 1)).ids,
                        std::span{states_}.subspan(i * encoder::elements, encoder::elements));
        }
        negative_.resize(encoder::elements);
        network.run(ids_of(args_.negative, "the negative prompt").ids, negative_);
    }

    const arguments& args_;
    std::vector<float> states_{}; ///< of one prompt after another
    std::vector<float> negative_{};
};

} // namespace pulse_train
