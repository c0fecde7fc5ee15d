#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weights.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>

namespace pulse::diffusers {

/// The config.json of a CLIP text encoder: transformers' CLIPTextModel or, if it projects, CLIPTextModelWithProjection.
[[nodiscard]] PULSE_INLINE component_config config_of(const encode::clip_text_config& c);
/// The config.json of transformers' BertModel.
[[nodiscard]] PULSE_INLINE component_config config_of(const encode::bert_text_config& c);
/// The config.json of transformers' T5EncoderModel or MT5EncoderModel.
[[nodiscard]] PULSE_INLINE component_config config_of(const encode::t5_text_config& c);

/// The eos_token_id by which the CLIP text encoder in a folder DIR/text_encoder finds the token that it pools
/// (clip_text::end_of), whatever the compiled config has. Throws input_error naming the file.
[[nodiscard]] PULSE_INLINE std::int32_t read_end_token(const std::filesystem::path& component);

/// Opens the weights of a text encoder of a pipeline, checked in full as open_backbone() does; Network must have a
/// config with a config_of().
template <class Network>
[[nodiscard]] weights open_text_encoder(const model_files& from, std::string_view name = "text_encoder") {
    require_fit(config_of(Network::config), from.folder / name);
    weights found{from, name};
    static constexpr auto all = Network::template parameters<>();
    constexpr std::string_view prefix = "text_model."; // transformers 5.6 and later may leave it out
    for (const parameter& what : all) {
        const std::string full = what.name.str();
        if (full.starts_with(prefix)) { found.rename(full.substr(prefix.size()), full); }
        found.rename("bert." + full, full); // saved from a BERT with heads
    }
    found.rename("encoder.embed_tokens.weight", "shared.weight");
    // Before transformers 4.31, CLIP and BERT stored position_ids among the weights; T5's table occurs twice in files
    // that write shared tensors separately.
    found.require(
        {.parameters = {all.begin(), all.end()},
         .ignored = {"text_model.embeddings.position_ids", "embeddings.position_ids", "encoder.embed_tokens.weight"}});
    return found;
}

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/text_encoder.ipp> // IWYU pragma: keep
#endif
