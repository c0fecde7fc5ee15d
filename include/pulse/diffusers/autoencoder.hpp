#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::diffusers {

/// The config.json of an autoencoder: diffusers' AutoencoderKL. The size of its pictures is not compared: the weights
/// are for any.
[[nodiscard]] inline component_config config_of(const encode::autoencoder_config& c) {
    using nlohmann::json;
    json channels = json::array();
    json down = json::array();
    json up = json::array();
    for (int level = 0; level != c.levels(); ++level) {
        channels.push_back(c.channels(level));
        down.push_back("DownEncoderBlock2D");
        up.push_back("UpDecoderBlock2D");
    }
    component_config config{.model = c.name.str(), .class_name = "AutoencoderKL"};
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
    // What later versions of the class have, which 0.27 does not know: written files are without.
    for (const char* const name : {"latents_mean", "latents_std", "shift_factor"}) {
        config.unwritten.push_back({name, nullptr, nullptr});
    }
    for (const char* const name : {"use_quant_conv", "use_post_quant_conv", "mid_block_add_attention"}) {
        config.unwritten.push_back({name, true, true});
    }
    config.ignored = {"sample_size", "force_upcast"};
    return config;
}

/// All parameters of an autoencoder: what encodes, then what decodes.
template <encode::autoencoder_config C>
[[nodiscard]] std::vector<parameter> autoencoder_parameters() {
    std::vector<parameter> all = model_parameters<encode::autoencoder_encoder<C>>();
    const std::vector<parameter> decoder = model_parameters<encode::autoencoder_decoder<C>>();
    all.insert(all.end(), decoder.begin(), decoder.end());
    return all;
}

/// Opens the weights of the component `vae` of a pipeline, checked in full as open_backbone() does; files from
/// before diffusers 0.18 have other names for some, which are read under the present ones.
template <encode::autoencoder_config C>
[[nodiscard]] weights open_autoencoder(const model_files& from) {
    require_fit(config_of(C), from.folder / "vae");
    weights found{from, "vae"};
    weights_request request{.parameters = autoencoder_parameters<C>()};
    for (const parameter& what : request.parameters) {
        found.rename(encode::older_name(what.name.view()), what.name.str());
    }
    found.require(request);
    return found;
}

} // namespace pulse::diffusers
