#pragma once

#include <pulse/nn/hunyuan_dit.hpp>

namespace pulse {

/// Hunyuan-DiT 1.1 (Tencent/HunyuanDiT, DiT-g/2), 128x128 latents of 1024-pixel images, conditioned on style and sizes:
/// 1,516,534,048 parameters.
struct hunyuan_dit_v11
    : hunyuan_dit<hunyuan_dit_config{.name = "hunyuan_dit_v11", .use_style_cond_and_image_meta_size = true}> {};

/// Hunyuan-DiT 1.2, without style and sizes: 1,499,952,032 parameters.
struct hunyuan_dit_v12 : hunyuan_dit<hunyuan_dit_config{.name = "hunyuan_dit_v12"}> {};

/// The smallest one, for tests: 8x8 latents, both texts, style and sizes.
struct hunyuan_tiny : hunyuan_dit<hunyuan_dit_config{.name = "hunyuan_tiny",
                                                     .sample_size = 8,
                                                     .in_channels = 4,
                                                     .hidden_size = 16,
                                                     .num_layers = 6,
                                                     .num_attention_heads = 2,
                                                     .mlp_hidden = 24,
                                                     .cross_attention_dim = 12,
                                                     .cross_attention_dim_t5 = 16,
                                                     .text_len = 5,
                                                     .text_len_t5 = 6,
                                                     .use_style_cond_and_image_meta_size = true,
                                                     .rotary_span = 4.0}> {};

} // namespace pulse
