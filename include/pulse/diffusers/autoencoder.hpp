#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/backbone.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::diffusers {

/// The config.json of an autoencoder: diffusers' AutoencoderKL. The size of its pictures is not compared: the weights
/// fit any size.
[[nodiscard]] PULSE_INLINE component_config config_of(const encode::autoencoder_config& c);

/// All parameters of an autoencoder: the encoder's, then the decoder's.
template <encode::autoencoder_config C>
[[nodiscard]] std::vector<parameter> autoencoder_parameters() {
    std::vector<parameter> all = model_parameters<encode::autoencoder_encoder<C>>();
    const std::vector<parameter> decoder = model_parameters<encode::autoencoder_decoder<C>>();
    all.insert(all.end(), decoder.begin(), decoder.end());
    return all;
}

/// Opens the weights of the component `vae` of a pipeline, checked in full as open_backbone() does. Files from before
/// diffusers 0.18 name some of them differently; these are read under the present names.
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

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/autoencoder.ipp> // IWYU pragma: keep
#endif
