#pragma once

#include <pulse/nn/unet.hpp>

namespace pulse_bench {

/// A small UNet with the parts of Stable Diffusion and SDXL; blocks_peer.py has the same.
struct small : pulse::unet<pulse::unet_config{.name = "small",
                                              .sample_size = 8,
                                              .in_channels = 4,
                                              .out_channels = 4,
                                              .block_out_channels = {8, 16},
                                              .layers_per_block = 1,
                                              .mid_block_attention = false,
                                              .norm_num_groups = 4,
                                              .transformer_layers_per_block = {0, 1},
                                              .mid_block_transformer_layers = 1,
                                              .cross_attention_dim = 48,
                                              .context_tokens = 7,
                                              .transformer_head_dim = 16,
                                              .projection_class_embeddings_input_dim = 6 * 16 + 24,
                                              .addition_time_embed_dim = 16}> {};

} // namespace pulse_bench
