#pragma once

#include <filesystem>
#include <optional>
#include <variant>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>

namespace pulse::diffusers {

using text_config = std::variant<encode::clip_text_config, encode::bert_text_config, encode::t5_text_config>;

/// The frozen networks of a diffusers folder: its vae, text_encoder and text_encoder_2.
struct network_configs {
    encode::autoencoder_config pictures{}; ///< without a vae: stands for the pixels that the backbone reads
    bool encodes_pictures{};               ///< whether there is a vae
    std::vector<text_config> texts{};
    int chunks{1}; ///< of a caption; a text encoder runs on each
};

/// The networks of a folder whose backbone reads latents of its vae, or pixels, and states of its texts. None for a
/// component's own folder, for a pipeline with neither vae nor text, and if the backbone reads other numbers of
/// channels or features than the networks give.
///
/// Throws input_error naming the file, and a key whose value pulse has no layers for.
[[nodiscard]] PULSE_INLINE std::optional<network_configs> read_networks(const std::filesystem::path& folder,
                                                                        const backbone_config& backbone);

/// Lets a backbone and its folder's text encoders read captions of `chunks` chunks (encode::text_chunks). Throws
/// input_error unless the backbone is a UNet that reads only states of CLIP, and for too many chunks.
PULSE_INLINE void read_long_captions(backbone_config& backbone, network_configs& networks, int chunks);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/read_networks.ipp> // IWYU pragma: keep
#endif
