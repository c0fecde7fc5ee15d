#pragma once

#include <tuple>

#include <pulse/core/label.hpp>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/known_text_encoders.hpp>
#include <pulse/encode/t5_text.hpp>
#include <pulse/encode/text_chunks.hpp>

namespace pulse {

// Backbones are only declared here: defining one costs compile time.
struct sd15;
struct sd21;
struct sd_fmnist;
struct sd_tiny;
struct sd_self_tiny;
struct sd_long_tiny;
struct sd_pixels_tiny;
struct sd_pixels_up_tiny;
struct controlnet_sd15;
struct controlnet_fmnist;
struct controlnet_tiny;
struct sdxl;
struct sdxl_tiny;
struct hunyuan_dit_v11;
struct hunyuan_dit_v12;
struct hunyuan_tiny;
struct uvit_l2;
struct uvit_h2;
struct uvit_tiny;

} // namespace pulse

namespace pulse::frozen {

/// Calls take(static_cast<const Text*>(nullptr)) for each text component.
template <class... Texts>
struct text_components {
    using texts = std::tuple<Texts...>;

    template <class Take>
    static void each_text([[maybe_unused]] const Take& take) {
        (take(static_cast<const Texts*>(nullptr)), ...);
    }
};

/// The frozen networks of the diffusers folder that holds a backbone; `known` is false for backbones without one.
template <class Model>
struct networks_of : text_components<> {
    static constexpr bool known = false;
};

/// A text encoder of a folder, with the folder's names of the encoder and its tokenizer. It runs on `Chunks` chunks of
/// a text (encode::text_chunks), and the model reads the states of all of them.
template <class Network, int Chunks = 1>
struct text_component {
    using network = Network;
    static constexpr encode::text_chunks chunks{Network::tokens, Chunks};
    static constexpr label component = "text_encoder";
    static constexpr label tokenizer = "tokenizer";
};
template <class Network, int Chunks = 1>
struct second_text {
    using network = Network;
    static constexpr encode::text_chunks chunks{Network::tokens, Chunks};
    static constexpr label component = "text_encoder_2";
    static constexpr label tokenizer = "tokenizer_2";
};

/// Networks of a folder with a vae and text components. The components' states, in order, are the model's text states;
/// if the model has fewer of these, the states of several components are concatenated as features of the same tokens.
template <encode::autoencoder_config Pictures, class... Texts>
struct folder_networks : text_components<Texts...> {
    static constexpr bool known = true;
    static constexpr encode::autoencoder_config picture_config = Pictures;
    using encoder = encode::autoencoder_encoder<Pictures>;
    using decoder = encode::autoencoder_decoder<Pictures>;
    static constexpr int no_class = -1;
};

/// Networks of a folder with a vae whose model reads classes. The last class, NoClass, means that no class is known.
template <encode::autoencoder_config Pictures, int NoClass>
struct class_networks : folder_networks<Pictures> {
    static constexpr int no_class = NoClass;
};

/// Networks of a folder without a vae, whose model reads and draws pixels.
template <encode::autoencoder_config Pictures, class... Texts>
struct pixel_networks : text_components<Texts...> {
    static constexpr bool known = true;
    static constexpr encode::autoencoder_config picture_config = Pictures;
    static constexpr int no_class = -1;
};

/// Whether the model works on latents of an autoencoder.
template <class Networks>
concept has_autoencoder = requires {
    typename Networks::encoder;
};

// Networks are named structs: nvcc 13.0 cannot spell a base whose arguments are templates of configurations.
struct clip_l : encode::clip_text<encode::clip_vit_l> {};
struct clip_h : encode::clip_text<encode::openclip_vit_h> {};

template <>
struct networks_of<sd15> : folder_networks<encode::kl_f8(512), text_component<clip_l>> {};
template <>
struct networks_of<controlnet_sd15> : networks_of<sd15> {};
template <>
struct networks_of<sd21> : folder_networks<encode::kl_f8(768), text_component<clip_h>> {};

inline constexpr encode::clip_text_config tiny_text{.name = "tiny_text",
                                                    .vocab_size = 640,
                                                    .hidden_size = 24,
                                                    .intermediate_size = 48,
                                                    .num_hidden_layers = 2,
                                                    .num_attention_heads = 3,
                                                    .max_position_embeddings = 7};
inline constexpr encode::autoencoder_config tiny_pictures{.name = "tiny_pictures",
                                                          .sample_size = 16,
                                                          .block_out_channels = {8, 16},
                                                          .layers_per_block = 1,
                                                          .norm_num_groups = 4};
struct tiny_clip : encode::clip_text<tiny_text> {};
template <>
struct networks_of<sd_tiny> : folder_networks<tiny_pictures, text_component<tiny_clip>> {};
template <>
struct networks_of<sd_self_tiny> : networks_of<sd_tiny> {};
template <>
struct networks_of<sd_long_tiny> : folder_networks<tiny_pictures, text_component<tiny_clip, 2>> {};
template <>
struct networks_of<controlnet_tiny> : networks_of<sd_tiny> {};

/// Pictures of `side` x `side` pixels that a test cascade draws.
[[nodiscard]] constexpr encode::autoencoder_config tiny_pixels(const label& name, int side) noexcept {
    encode::autoencoder_config c{};
    c.name = name;
    c.sample_size = side;
    c.latent_channels = 3;
    c.block_out_channels = {3};
    c.scaling_factor = 1.0;
    return c;
}
template <>
struct networks_of<sd_pixels_tiny> : pixel_networks<tiny_pixels("tiny_pixels", 8), text_component<tiny_clip>> {};
template <>
struct networks_of<sd_pixels_up_tiny> : pixel_networks<tiny_pixels("tiny_pixels_up", 16), text_component<tiny_clip>> {};

inline constexpr encode::clip_text_config fmnist_text{.name = "fmnist_text",
                                                      .vocab_size = 640,
                                                      .hidden_size = 32,
                                                      .intermediate_size = 64,
                                                      .num_hidden_layers = 2,
                                                      .num_attention_heads = 2,
                                                      .max_position_embeddings = 9};
inline constexpr encode::autoencoder_config fmnist_pixels{.name = "fmnist_pixels",
                                                          .sample_size = 28,
                                                          .in_channels = 1,
                                                          .out_channels = 1,
                                                          .latent_channels = 1,
                                                          .block_out_channels = {1},
                                                          .scaling_factor = 1.0};
struct fmnist_clip : encode::clip_text<fmnist_text> {};
template <>
struct networks_of<sd_fmnist> : pixel_networks<fmnist_pixels, text_component<fmnist_clip>> {};
template <>
struct networks_of<controlnet_fmnist> : networks_of<sd_fmnist> {};

struct sdxl_clip_l : encode::clip_text<encode::clip_vit_l_sdxl> {};
struct sdxl_clip_bigg : encode::clip_text<encode::openclip_vit_bigg> {};
using sdxl_networks =
    folder_networks<encode::kl_f8(1024, 0.13025), text_component<sdxl_clip_l>, second_text<sdxl_clip_bigg>>;
template <>
struct networks_of<sdxl> : sdxl_networks {};

/// A text encoder of sdxl_tiny.
[[nodiscard]] constexpr encode::clip_text_config tiny_sdxl_text(const label& name, int features,
                                                                int projection) noexcept {
    encode::clip_text_config c = tiny_text;
    c.name = name;
    c.hidden_size = features;
    c.num_attention_heads = 2;
    c.projection_dim = projection;
    c.states_before = 1;
    return c;
}
struct tiny_sdxl_first : encode::clip_text<tiny_sdxl_text("tiny_sdxl_text", 8, 0)> {};
struct tiny_sdxl_second : encode::clip_text<tiny_sdxl_text("tiny_sdxl_text_2", 16, 12)> {};
template <>
struct networks_of<sdxl_tiny>
    : folder_networks<tiny_pictures, text_component<tiny_sdxl_first>, second_text<tiny_sdxl_second>> {};

struct hunyuan_bert : encode::bert_text<encode::hunyuan_clip> {};
struct hunyuan_t5 : encode::t5_text<encode::mt5_xl> {};
using hunyuan_networks =
    folder_networks<encode::kl_f8(1024, 0.13025), text_component<hunyuan_bert>, second_text<hunyuan_t5>>;
template <>
struct networks_of<hunyuan_dit_v11> : hunyuan_networks {};
template <>
struct networks_of<hunyuan_dit_v12> : hunyuan_networks {};

inline constexpr encode::bert_text_config tiny_bert{.name = "tiny_bert",
                                                    .tokens = 5,
                                                    .vocab_size = 64,
                                                    .hidden_size = 12,
                                                    .intermediate_size = 24,
                                                    .num_hidden_layers = 2,
                                                    .num_attention_heads = 2,
                                                    .max_position_embeddings = 8};
inline constexpr encode::t5_text_config tiny_t5{.name = "tiny_t5",
                                                .tokens = 6,
                                                .vocab_size = 128,
                                                .d_model = 16,
                                                .d_kv = 8,
                                                .d_ff = 24,
                                                .num_layers = 2,
                                                .num_heads = 2};
struct tiny_hunyuan_bert : encode::bert_text<tiny_bert> {};
struct tiny_hunyuan_t5 : encode::t5_text<tiny_t5> {};
template <>
struct networks_of<hunyuan_tiny>
    : folder_networks<tiny_pictures, text_component<tiny_hunyuan_bert>, second_text<tiny_hunyuan_t5>> {};

template <>
struct networks_of<uvit_l2> : class_networks<encode::kl_f8(256), 1000> {};
template <>
struct networks_of<uvit_h2> : class_networks<encode::kl_f8(256), 1000> {};
template <>
struct networks_of<uvit_tiny> : class_networks<tiny_pictures, 9> {};

} // namespace pulse::frozen
