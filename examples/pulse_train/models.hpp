#pragma once

#include <pulse/zoo/ddpm.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

namespace pulse_train {

using pulse::ddpm_cifar10;
using pulse::ddpm_fmnist;
using pulse::sd15;
using pulse::sd21;

/// A UNet that learns to draw clothes within minutes on two cores: the layout of ddpm_fmnist with fewer channels.
struct ddpm_fmnist_small : pulse::unet<pulse::unet_config{.name = "ddpm_fmnist_small",
                                                          .sample_size = 28,
                                                          .in_channels = 1,
                                                          .out_channels = 1,
                                                          .block_out_channels = {16, 32, 64},
                                                          .attention = {false, false, true},
                                                          .attention_head_dim = 16,
                                                          .norm_num_groups = 8}> {};

/// The layout of sd21 as small as it gets, to see the way of text and latents within seconds.
struct sd_tiny : pulse::unet<pulse::unet_config{.name = "sd_tiny",
                                                .sample_size = 8,
                                                .in_channels = 4,
                                                .out_channels = 4,
                                                .block_out_channels = {8, 16},
                                                .layers_per_block = 1,
                                                .mid_block_attention = false,
                                                .norm_num_groups = 4,
                                                .transformer_layers_per_block = {1},
                                                .mid_block_transformer_layers = 1,
                                                .cross_attention_dim = 24,
                                                .context_tokens = 7,
                                                .transformer_head_dim = 8}> {};

} // namespace pulse_train
