#pragma once

#include <pulse/nn/controlnet.hpp>
#include <pulse/zoo/stable_diffusion.hpp>

namespace pulse {

/// ControlNet 1.0 on Stable Diffusion 1.5 (lllyasviel/ControlNet cldm_v15.yaml): 361,279,120 trained parameters,
/// 859,520,964 locked ones, hints of 512x512 pixels.
struct controlnet_sd15 : controlnet<sd15::config> {};

/// A small one that learns to draw clothes by prompt and outline, on sd_fmnist: hints of 224x224 pixels.
struct controlnet_fmnist : controlnet<sd_fmnist::config> {};

/// The smallest one, for tests, on sd_tiny.
struct controlnet_tiny : controlnet<sd_tiny::config> {};

} // namespace pulse
