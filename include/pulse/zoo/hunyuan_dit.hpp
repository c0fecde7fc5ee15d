#pragma once

#include <pulse/nn/hunyuan_dit.hpp>

namespace pulse {

/// Hunyuan-DiT 1.1 (Tencent/HunyuanDiT, DiT-g/2), 128x128 latents of 1024-pixel images, conditioned on style and sizes:
/// 1,516,534,048 parameters.
struct hunyuan_dit_v11
    : hunyuan_dit<hunyuan_dit_config{.name = "hunyuan_dit_v11", .use_style_cond_and_image_meta_size = true}> {};

/// Hunyuan-DiT 1.2, without those conditions: 1,499,952,032 parameters.
struct hunyuan_dit_v12 : hunyuan_dit<hunyuan_dit_config{.name = "hunyuan_dit_v12"}> {};

} // namespace pulse
