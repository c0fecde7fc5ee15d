#pragma once

#include <pulse/core/label.hpp>
#include <pulse/nn/unet.hpp>

namespace pulse {

/// The UNet of Stable Diffusion 1.5 (Rombach et al. 2022; CompVis/stable-diffusion v1-inference.yaml), 64x64 latents of
/// 512-pixel images, text states of CLIP ViT-L/14: 859,520,964 parameters.
struct sd15 : unet<unet_config{.name = "sd15",
                               .sample_size = 64,
                               .in_channels = 4,
                               .out_channels = 4,
                               .block_out_channels = {320, 640, 1280, 1280},
                               .mid_block_attention = false,
                               .transformer_layers_per_block = {1, 1, 1},
                               .mid_block_transformer_layers = 1,
                               .cross_attention_dim = 768,
                               .transformer_heads = 8,
                               .use_linear_projection = false}> {};

/// The UNet of Stable Diffusion 2.1 (Stability-AI/stablediffusion v2-inference-v.yaml), 96x96 latents of 768-pixel
/// images, text states of OpenCLIP ViT-H/14: 865,910,724 parameters.
struct sd21 : unet<unet_config{.name = "sd21",
                               .sample_size = 96,
                               .in_channels = 4,
                               .out_channels = 4,
                               .block_out_channels = {320, 640, 1280, 1280},
                               .mid_block_attention = false,
                               .transformer_layers_per_block = {1, 1, 1},
                               .mid_block_transformer_layers = 1,
                               .cross_attention_dim = 1024}> {};

/// A small one that learns to draw the clothes of Fashion-MNIST by prompt within minutes on two cores: 28x28 grey
/// pixels instead of latents, nine text states, in the layout of sd21.
struct sd_fmnist : unet<unet_config{.name = "sd_fmnist",
                                    .sample_size = 28,
                                    .in_channels = 1,
                                    .out_channels = 1,
                                    .block_out_channels = {16, 32, 64},
                                    .mid_block_attention = false,
                                    .norm_num_groups = 8,
                                    .transformer_layers_per_block = {0, 0, 1},
                                    .mid_block_transformer_layers = 1,
                                    .cross_attention_dim = 32,
                                    .context_tokens = 9,
                                    .transformer_head_dim = 16}> {};

/// The smallest one, for tests: 8x8 latents, two levels, seven text states, in the layout of sd21.
struct sd_tiny : unet<unet_config{.name = "sd_tiny",
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

namespace detail {

/// The same backbone under another name, which also reads a second image: its own prediction, or an enlarged smaller
/// one.
[[nodiscard]] consteval unet_config reading_two(unet_config of, label name) {
    of.name = name;
    of.in_channels = 2 * of.out_channels;
    return of;
}

/// The same backbone under another name, with captions of `tokens` text states.
[[nodiscard]] consteval unet_config with_tokens(unet_config of, label name, int tokens) {
    of.name = name;
    of.context_tokens = tokens;
    return of;
}

/// The same backbone under another name, for colour pictures of `side` x `side` pixels instead of latents.
[[nodiscard]] consteval unet_config of_pixels(unet_config of, label name, int side) {
    of.name = name;
    of.sample_size = side;
    of.in_channels = 3;
    of.out_channels = 3;
    return of;
}

} // namespace detail

/// The smallest one with long captions (two chunks), for tests.
struct sd_long_tiny : unet<detail::with_tokens(sd_tiny::config, "sd_long_tiny", 12)> {};

/// The smallest self-conditioned one, for tests.
struct sd_self_tiny : unet<detail::reading_two(sd_tiny::config, "sd_self_tiny")> {};

/// The smallest cascade, for tests: one backbone of 8x8 pixels, and one of 16x16 pixels that also reads them enlarged.
struct sd_pixels_tiny : unet<detail::of_pixels(sd_tiny::config, "sd_pixels_tiny", 8)> {};
struct sd_pixels_up_tiny
    : unet<detail::reading_two(detail::of_pixels(sd_tiny::config, "sd_pixels_up_tiny", 16), "sd_pixels_up_tiny")> {};

} // namespace pulse
