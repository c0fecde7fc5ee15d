#pragma once

#include <pulse/nn/unet.hpp>

namespace pulse {

/// The UNet of SDXL base (Podell et al. 2023; stabilityai/stable-diffusion-xl-base-1.0), 128x128 latents of 1024-pixel
/// images: 2,567,463,684 parameters in 34 layers.
struct sdxl : unet<unet_config{.name = "sdxl",
                               .sample_size = 128,
                               .in_channels = 4,
                               .out_channels = 4,
                               .block_out_channels = {320, 640, 1280},
                               .mid_block_attention = false,
                               .transformer_layers_per_block = {0, 2, 10},
                               .mid_block_transformer_layers = 10,
                               .cross_attention_dim = 2048,
                               .projection_class_embeddings_input_dim = 2816}> {};

/// The smallest one, for tests: 8x8 latents, two levels, seven text states, pooled text and sizes.
struct sdxl_tiny : unet<unet_config{.name = "sdxl_tiny",
                                    .sample_size = 8,
                                    .in_channels = 4,
                                    .out_channels = 4,
                                    .block_out_channels = {8, 16},
                                    .layers_per_block = 1,
                                    .mid_block_attention = false,
                                    .norm_num_groups = 4,
                                    .transformer_layers_per_block = {0, 2},
                                    .mid_block_transformer_layers = 2,
                                    .cross_attention_dim = 24,
                                    .context_tokens = 7,
                                    .transformer_head_dim = 8,
                                    .projection_class_embeddings_input_dim = 12 + 6 * 8,
                                    .addition_time_embed_dim = 8}> {};

} // namespace pulse
