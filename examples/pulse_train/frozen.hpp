#pragma once

#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/known_text_encoders.hpp>

#include "models.hpp"

namespace pulse_train {

/// The frozen networks of the diffusers folders that a backbone is found in; of most backbones none are known.
template <class Model>
struct frozen_networks {
    static constexpr bool known = false;
};

/// Those of a StableDiffusionPipeline: text_encoder and vae.
template <pulse::encode::clip_text_config Text, pulse::encode::autoencoder_config Pictures>
struct stable_diffusion {
    static constexpr bool known = true;
    static constexpr pulse::encode::clip_text_config text_config = Text;
    static constexpr pulse::encode::autoencoder_config picture_config = Pictures;
    using text = pulse::encode::clip_text<Text>;
    using encoder = pulse::encode::autoencoder_encoder<Pictures>;
    using decoder = pulse::encode::autoencoder_decoder<Pictures>;
};

template <>
struct frozen_networks<pulse::sd15> : stable_diffusion<pulse::encode::clip_vit_l, pulse::encode::kl_f8(512)> {};
template <>
struct frozen_networks<pulse::sd21> : stable_diffusion<pulse::encode::openclip_vit_h, pulse::encode::kl_f8(768)> {};

inline constexpr pulse::encode::clip_text_config tiny_text{.name = "tiny_text",
                                                           .vocab_size = 640,
                                                           .hidden_size = 24,
                                                           .intermediate_size = 48,
                                                           .num_hidden_layers = 2,
                                                           .num_attention_heads = 3,
                                                           .max_position_embeddings = 7};
inline constexpr pulse::encode::autoencoder_config tiny_pictures{.name = "tiny_pictures",
                                                                 .sample_size = 16,
                                                                 .block_out_channels = {8, 16},
                                                                 .layers_per_block = 1,
                                                                 .norm_num_groups = 4};
template <>
struct frozen_networks<sd_tiny> : stable_diffusion<tiny_text, tiny_pictures> {};

/// Whether a side can encode captioned pictures for a model.
template <class Model, class Side>
inline constexpr bool can_encode = frozen_networks<Model>::known&& Side::encodes;

} // namespace pulse_train
