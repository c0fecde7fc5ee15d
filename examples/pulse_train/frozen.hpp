#pragma once

#include <tuple>

#include <pulse/core/label.hpp>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/known_text_encoders.hpp>
#include <pulse/encode/t5_text.hpp>

namespace pulse {

// Backbones are only named here: to define one takes the compiler's time.
struct sd15;
struct sd21;
struct sd_fmnist;
struct sd_tiny;
struct sdxl;
struct sdxl_fine;
struct sdxl_tiny;
struct hunyuan_dit_v11;
struct hunyuan_dit_v12;
struct hunyuan_tiny;
struct uvit_l2;
struct uvit_h2;
struct uvit_tiny;

} // namespace pulse

namespace pulse_train {

/// The frozen networks of the diffusers folders that a backbone is found in; of some backbones none are known.
template <class Model>
struct frozen_networks {
    static constexpr bool known = false;
};

/// A text encoder of a folder, and the folder's components that are it and its tokenizer.
template <class Network, pulse::label Component = "text_encoder", pulse::label Tokenizer = "tokenizer">
struct text_component {
    using network = Network;
    static constexpr pulse::label component = Component;
    static constexpr pulse::label tokenizer = Tokenizer;
};
template <class Network>
using second_text = text_component<Network, "text_encoder_2", "tokenizer_2">;

/// Those of a folder: vae, and text components. Their states are the model's text states, in their order; where the
/// model has fewer of these, states of one text lie beside each other as features of the same tokens.
template <pulse::encode::autoencoder_config Pictures, class... Texts>
struct folder_networks {
    static constexpr bool known = true;
    static constexpr pulse::encode::autoencoder_config picture_config = Pictures;
    using encoder = pulse::encode::autoencoder_encoder<Pictures>;
    using decoder = pulse::encode::autoencoder_decoder<Pictures>;
    using texts = std::tuple<Texts...>;
    static constexpr int no_class = -1;
};

/// Those of a folder whose model reads classes: vae. The last class says that none is known.
template <pulse::encode::autoencoder_config Pictures, int NoClass>
struct class_networks : folder_networks<Pictures> {
    static constexpr int no_class = NoClass;
};

/// Those of a folder without a vae, whose model reads and draws pixels.
template <int Size, int Channels, class... Texts>
struct pixel_networks {
    static constexpr bool known = true;
    static constexpr pulse::encode::autoencoder_config picture_config{.name = "pixels",
                                                                      .sample_size = Size,
                                                                      .in_channels = Channels,
                                                                      .out_channels = Channels,
                                                                      .latent_channels = Channels,
                                                                      .block_out_channels = {1},
                                                                      .scaling_factor = 1.0};
    using texts = std::tuple<Texts...>;
    static constexpr int no_class = -1;
};

/// Whether a folder's pictures are latents of an autoencoder to the model.
template <class Frozen>
concept has_autoencoder = requires {
    typename Frozen::encoder;
};

template <pulse::encode::clip_text_config First>
using clip_component = text_component<pulse::encode::clip_text<First>>;

template <>
struct frozen_networks<pulse::sd15>
    : folder_networks<pulse::encode::kl_f8(512), clip_component<pulse::encode::clip_vit_l>> {};
template <>
struct frozen_networks<pulse::sd21>
    : folder_networks<pulse::encode::kl_f8(768), clip_component<pulse::encode::openclip_vit_h>> {};

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
struct frozen_networks<pulse::sd_tiny> : folder_networks<tiny_pictures, clip_component<tiny_text>> {};

inline constexpr pulse::encode::clip_text_config fmnist_text{.name = "fmnist_text",
                                                             .vocab_size = 640,
                                                             .hidden_size = 32,
                                                             .intermediate_size = 64,
                                                             .num_hidden_layers = 2,
                                                             .num_attention_heads = 2,
                                                             .max_position_embeddings = 9};
template <>
struct frozen_networks<pulse::sd_fmnist> : pixel_networks<28, 1, clip_component<fmnist_text>> {};

using sdxl_networks =
    folder_networks<pulse::encode::kl_f8(1024, 0.13025), clip_component<pulse::encode::clip_vit_l_sdxl>,
                    second_text<pulse::encode::clip_text<pulse::encode::openclip_vit_bigg>>>;
template <>
struct frozen_networks<pulse::sdxl> : sdxl_networks {};
template <>
struct frozen_networks<pulse::sdxl_fine> : sdxl_networks {};

/// A text encoder of sdxl_tiny.
[[nodiscard]] constexpr pulse::encode::clip_text_config tiny_sdxl_text(const pulse::label& name, int features,
                                                                       int projection) noexcept {
    pulse::encode::clip_text_config c = tiny_text;
    c.name = name;
    c.hidden_size = features;
    c.num_attention_heads = 2;
    c.projection_dim = projection;
    c.states_before = 1;
    return c;
}
template <>
struct frozen_networks<pulse::sdxl_tiny>
    : folder_networks<tiny_pictures, clip_component<tiny_sdxl_text("tiny_sdxl_text", 8, 0)>,
                      second_text<pulse::encode::clip_text<tiny_sdxl_text("tiny_sdxl_text_2", 16, 12)>>> {};

using hunyuan_networks = folder_networks<pulse::encode::kl_f8(1024, 0.13025),
                                         text_component<pulse::encode::bert_text<pulse::encode::hunyuan_clip>>,
                                         second_text<pulse::encode::t5_text<pulse::encode::mt5_xl>>>;
template <>
struct frozen_networks<pulse::hunyuan_dit_v11> : hunyuan_networks {};
template <>
struct frozen_networks<pulse::hunyuan_dit_v12> : hunyuan_networks {};

inline constexpr pulse::encode::bert_text_config tiny_bert{.name = "tiny_bert",
                                                           .tokens = 5,
                                                           .vocab_size = 64,
                                                           .hidden_size = 12,
                                                           .intermediate_size = 24,
                                                           .num_hidden_layers = 2,
                                                           .num_attention_heads = 2,
                                                           .max_position_embeddings = 8};
inline constexpr pulse::encode::t5_text_config tiny_t5{.name = "tiny_t5",
                                                       .tokens = 6,
                                                       .vocab_size = 128,
                                                       .d_model = 16,
                                                       .d_kv = 8,
                                                       .d_ff = 24,
                                                       .num_layers = 2,
                                                       .num_heads = 2};
template <>
struct frozen_networks<pulse::hunyuan_tiny>
    : folder_networks<tiny_pictures, text_component<pulse::encode::bert_text<tiny_bert>>,
                      second_text<pulse::encode::t5_text<tiny_t5>>> {};

template <>
struct frozen_networks<pulse::uvit_l2> : class_networks<pulse::encode::kl_f8(256), 1000> {};
template <>
struct frozen_networks<pulse::uvit_h2> : class_networks<pulse::encode::kl_f8(256), 1000> {};
template <>
struct frozen_networks<pulse::uvit_tiny> : class_networks<tiny_pictures, 9> {};

/// Whether a side can encode captioned pictures for a model.
template <class Model, class Side>
inline constexpr bool can_encode = frozen_networks<Model>::known&& Side::encodes;

} // namespace pulse_train
