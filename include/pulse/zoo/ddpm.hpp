#pragma once

#include <pulse/nn/unet.hpp>

namespace pulse {

/// The UNet of DDPM (Ho, Jain and Abbeel 2020) for CIFAR-10, as in google/ddpm-cifar10-32: 35,746,307 parameters.
struct ddpm_cifar10 : unet<unet_config{.name = "ddpm_cifar10",
                                       .sample_size = 32,
                                       .block_out_channels = {128, 256, 256, 256},
                                       .attention = {false, true},
                                       .attention_head_dim = 0,
                                       .norm_eps = 1e-6,
                                       .downsample_padding = 0,
                                       .flip_sin_to_cos = false,
                                       .freq_shift = 1}> {};

/// A small UNet of the same family for Fashion-MNIST, 28x28 greyscale: 1,623,169 parameters.
struct ddpm_fmnist : unet<unet_config{.name = "ddpm_fmnist",
                                      .sample_size = 28,
                                      .in_channels = 1,
                                      .out_channels = 1,
                                      .block_out_channels = {32, 64, 64},
                                      .attention = {false, true},
                                      .norm_num_groups = 8}> {};

/// A UNet that learns to draw clothes within minutes on two cores: the layout of ddpm_fmnist with fewer channels.
struct ddpm_fmnist_small : unet<unet_config{.name = "ddpm_fmnist_small",
                                            .sample_size = 28,
                                            .in_channels = 1,
                                            .out_channels = 1,
                                            .block_out_channels = {16, 32, 64},
                                            .attention = {false, false, true},
                                            .attention_head_dim = 16,
                                            .norm_num_groups = 8}> {};

/// The first backbone of a cascade, trained as quickly: clothes at half size, 14x14.
struct ddpm_fmnist_half : unet<unet_config{.name = "ddpm_fmnist_half",
                                           .sample_size = 14,
                                           .in_channels = 1,
                                           .out_channels = 1,
                                           .block_out_channels = {32, 64},
                                           .attention = {false, true},
                                           .attention_head_dim = 16,
                                           .norm_num_groups = 8}> {};

/// The second one, which also reads the enlarged output of ddpm_fmnist_half (train::enlargement).
struct ddpm_fmnist_up : unet<unet_config{.name = "ddpm_fmnist_up",
                                         .sample_size = 28,
                                         .in_channels = 2,
                                         .out_channels = 1,
                                         .block_out_channels = {16, 32, 64},
                                         .attention = {false, false, true},
                                         .attention_head_dim = 16,
                                         .norm_num_groups = 8}> {};

/// The smallest one that has every kind of layer, for tests: 8x8 images, two levels, attention at 4x4.
struct ddpm_tiny : unet<unet_config{.name = "ddpm_tiny",
                                    .sample_size = 8,
                                    .in_channels = 1,
                                    .out_channels = 1,
                                    .block_out_channels = {8, 16},
                                    .layers_per_block = 1,
                                    .attention = {false, true},
                                    .norm_num_groups = 4}> {};

} // namespace pulse
