#pragma once

#include <pulse/zoo/ddpm.hpp>

namespace pulse_train {

/// A UNet that learns to draw clothes within minutes on two cores: the layout of ddpm_fmnist with fewer channels.
struct ddpm_fmnist_small : pulse::unet<pulse::unet_config{.name = "ddpm_fmnist_small",
                                                          .sample_size = 28,
                                                          .in_channels = 1,
                                                          .out_channels = 1,
                                                          .block_out_channels = {16, 32, 64},
                                                          .attention = {false, false, true},
                                                          .attention_head_dim = 16,
                                                          .norm_num_groups = 8}> {};

} // namespace pulse_train
