#pragma once

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_key.hpp>
#include <pulse/encode/autoencoder_config.hpp>

namespace pulse::diffusers {

PULSE_INLINE component_config config_of(const encode::autoencoder_config& c) {
    using nlohmann::json;
    json channels = json::array();
    json down = json::array();
    json up = json::array();
    for (int level = 0; level != c.levels(); ++level) {
        channels.push_back(c.channels(level));
        down.push_back("DownEncoderBlock2D");
        up.push_back("UpDecoderBlock2D");
    }
    component_config config{c.name.str(), "AutoencoderKL"};
    config.keys = {{"in_channels", c.in_channels, 3},
                   {"out_channels", c.out_channels, 3},
                   {"down_block_types", down, {"DownEncoderBlock2D"}, {}, true},
                   {"up_block_types", up, {"UpDecoderBlock2D"}, {}, true},
                   {"block_out_channels", channels, {64}, {}, true},
                   {"layers_per_block", c.layers_per_block, 1},
                   {"act_fn", "silu", "silu", {"swish"}},
                   {"latent_channels", c.latent_channels, 4},
                   {"norm_num_groups", c.norm_num_groups, 32},
                   {"scaling_factor", c.scaling_factor, 0.18215}};
    // Keys of later versions of the class, which 0.27 does not know: they are not written.
    for (const char* const name : {"latents_mean", "latents_std", "shift_factor"}) {
        config.unwritten.push_back({name, nullptr, nullptr});
    }
    for (const char* const name : {"use_quant_conv", "use_post_quant_conv", "mid_block_add_attention"}) {
        config.unwritten.push_back({name, true, true});
    }
    config.ignored = {"sample_size", "force_upcast"};
    return config;
}

} // namespace pulse::diffusers
