#pragma once

#include <pulse/nn/unet.hpp>

namespace pulse::test {

/// Differs from ddpm_tiny's defaults: three levels, one head, asymmetric padding, no attention in the middle, more
/// input than output width, and groups that straddle the two sources of a norm.
struct crooked_unet : unet<unet_config{.name = "crooked_unet",
                                       .sample_size = 4,
                                       .in_channels = 2,
                                       .out_channels = 3,
                                       .block_out_channels = {6, 4, 2},
                                       .layers_per_block = 1,
                                       .attention = {true, false, true},
                                       .mid_block_attention = false,
                                       .attention_head_dim = 0,
                                       .norm_num_groups = 2,
                                       .norm_eps = 1e-4,
                                       .downsample_padding = 0,
                                       .flip_sin_to_cos = false,
                                       .freq_shift = 1}> {};

} // namespace pulse::test
