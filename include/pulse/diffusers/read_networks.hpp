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

/// The frozen networks of a diffusers folder: its vae, and what text_encoder and text_encoder_2 are.
struct network_configs {
    encode::autoencoder_config pictures{}; ///< without a vae, of the pixels that the backbone reads
    bool encodes_pictures{};               ///< there is a vae
    std::vector<text_config> texts{};
    int chunks{1}; ///< of a caption, on each of which a text encoder runs
};

/// The networks of a folder whose backbone reads latents of its vae, or pixels, and states of its texts; none of a
/// component's own folder, of a pipeline with neither vae nor text, or where the backbone reads more or fewer channels
/// or features than they give.
///
/// Throws input_error naming the file, and the key whose value pulse has no layers for.
[[nodiscard]] PULSE_INLINE std::optional<network_configs> read_networks(const std::filesystem::path& folder,
                                                                        const backbone_config& backbone);

/// Lets a backbone and the text encoders of its folder read captions of so many chunks (encode::text_chunks). Throws
/// input_error unless the backbone is a UNet that reads states of CLIP alone, or where there are too many chunks.
PULSE_INLINE void read_long_captions(backbone_config& backbone, network_configs& networks, int chunks);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/read_networks.ipp> // IWYU pragma: keep
#endif
