#pragma once

#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::test {

/// Stable Diffusion's structure: projections as convolutions, a fixed number of heads, one block per transformer.
struct small_sd : unet<unet_config{.name = "small_sd",
                                   .sample_size = 4,
                                   .in_channels = 2,
                                   .out_channels = 2,
                                   .block_out_channels = {4, 8},
                                   .layers_per_block = 1,
                                   .mid_block_attention = false,
                                   .norm_num_groups = 2,
                                   .transformer_layers_per_block = {1},
                                   .mid_block_transformer_layers = 1,
                                   .cross_attention_dim = 6,
                                   .context_tokens = 3,
                                   .transformer_heads = 2,
                                   .use_linear_projection = false}> {};

/// The same with text states of another width, which a linear layer projects to that of the blocks.
constexpr unet_config small_projected_config() {
    unet_config c = small_sd::config;
    c.name = "small_projected";
    c.encoder_hid_dim = 7;
    return c;
}
struct small_projected : unet<small_projected_config()> {};

/// SDXL's structure: projections as linear layers, several blocks per transformer, pooled text and sizes.
struct small_sdxl : unet<unet_config{.name = "small_sdxl",
                                     .sample_size = 4,
                                     .in_channels = 3,
                                     .out_channels = 3,
                                     .block_out_channels = {4, 8},
                                     .layers_per_block = 1,
                                     .mid_block_attention = false,
                                     .norm_num_groups = 2,
                                     .transformer_layers_per_block = {0, 2},
                                     .mid_block_transformer_layers = 2,
                                     .cross_attention_dim = 5,
                                     .context_tokens = 4,
                                     .transformer_head_dim = 4,
                                     .projection_class_embeddings_input_dim = 3 + 6 * 4,
                                     .addition_time_embed_dim = 4}> {};

constexpr hunyuan_dit_config small_hunyuan_config(const label& name, bool older) {
    return {.name = name,
            .sample_size = 4,
            .in_channels = 2,
            .hidden_size = 8,
            .num_layers = 6,
            .num_attention_heads = 2,
            .mlp_hidden = 12,
            .cross_attention_dim = 5,
            .cross_attention_dim_t5 = 8,
            .text_len = 2,
            .text_len_t5 = 3,
            .use_style_cond_and_image_meta_size = older,
            .rotary_span = 4.0};
}
struct small_hunyuan_v11 : hunyuan_dit<small_hunyuan_config("small_hunyuan_v11", true)> {};
struct small_hunyuan_v12 : hunyuan_dit<small_hunyuan_config("small_hunyuan_v12", false)> {};

struct labelled_uvit : uvit<uvit_config{.name = "labelled_uvit",
                                        .img_size = 4,
                                        .patch_size = 2,
                                        .in_chans = 3,
                                        .embed_dim = 8,
                                        .depth = 2,
                                        .num_heads = 2,
                                        .num_classes = 3}> {};

} // namespace pulse::test
