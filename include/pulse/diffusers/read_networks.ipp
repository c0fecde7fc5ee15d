#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/autoencoder.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_reader.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>
#include <pulse/encode/text_chunks.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

namespace detail {

// Channels and size of a backbone's sample, tokens and features of its text states.

struct backbone_input {
    int channels{};
    int size{};
    std::vector<std::pair<int, int>> states{}; ///< tokens, features
    int pooled{};                              ///< features of the pooled text
    int classes{};
};
[[nodiscard]] inline backbone_input input_of(const unet_config& c) {
    // A self-conditioned UNet reads its own prediction beside the sample.
    const bool twice = c.in_channels == 2 * c.out_channels;
    backbone_input in{.channels = twice ? c.out_channels : c.in_channels, .size = c.sample_size, .pooled = c.pooled()};
    if (c.reads_text()) { in.states.push_back({c.context_tokens, c.text_features()}); }
    return in;
}
[[nodiscard]] inline backbone_input input_of(const hunyuan_dit_config& c) {
    return {.channels = c.in_channels,
            .size = c.sample_size,
            .states = {{c.text_len, c.cross_attention_dim}, {c.text_len_t5, c.cross_attention_dim_t5}}};
}
[[nodiscard]] inline backbone_input input_of(const uvit_config& c) {
    return {.channels = c.in_chans, .size = c.img_size, .classes = c.num_classes};
}

[[nodiscard]] inline encode::autoencoder_config autoencoder_of(const config_reader& file, const label& name,
                                                               int latents) {
    encode::autoencoder_config c{.name = name};
    c.in_channels = file.count("in_channels", 3);
    c.out_channels = file.count("out_channels", 3);
    c.latent_channels = file.count("latent_channels", 4);
    const bool lists = !file.list("block_out_channels").empty();
    c.block_out_channels =
        lists ? config_reader::counts_in(file.root()["block_out_channels"]).values : std::array<int, 8>{64};
    c.layers_per_block = file.count("layers_per_block", 1);
    c.norm_num_groups = file.count("norm_num_groups", 32);
    c.scaling_factor = file.number("scaling_factor", 0.18215);
    c.sample_size = latents << (c.levels() - 1);
    return c;
}

[[nodiscard]] inline text_config text_of(const config_reader& file, const label& name, int tokens, bool before_last) {
    const std::string kind = file.text("model_type", "");
    if (kind == "bert") {
        return encode::bert_text_config{.name = name,
                                        .tokens = tokens,
                                        .vocab_size = file.count("vocab_size", 30522),
                                        .hidden_size = file.count("hidden_size", 768),
                                        .intermediate_size = file.count("intermediate_size", 3072),
                                        .num_hidden_layers = file.count("num_hidden_layers", 12),
                                        .num_attention_heads = file.count("num_attention_heads", 12),
                                        .max_position_embeddings = file.count("max_position_embeddings", 512),
                                        .type_vocab_size = file.count("type_vocab_size", 2),
                                        .layer_norm_eps = file.number("layer_norm_eps", 1e-12)};
    }
    if (kind == "t5" || kind == "mt5") {
        return encode::t5_text_config{
            .name = name,
            .tokens = tokens,
            .vocab_size = file.count("vocab_size", 32128),
            .d_model = file.count("d_model", 512),
            .d_kv = file.count("d_kv", 64),
            .d_ff = file.count("d_ff", 2048),
            .num_layers = file.count("num_layers", 6),
            .num_heads = file.count("num_heads", 8),
            .relative_attention_num_buckets = file.count("relative_attention_num_buckets", 32),
            .relative_attention_max_distance = file.count("relative_attention_max_distance", 128),
            .layer_norm_epsilon = file.number("layer_norm_epsilon", 1e-6)};
    }
    const std::vector<json_field> classes = file.list("architectures");
    const bool projects = !classes.empty() && classes[0].text() == "CLIPTextModelWithProjection";
    encode::clip_text_config c{.name = name};
    c.vocab_size = file.count("vocab_size", 49408);
    c.hidden_size = file.count("hidden_size", 512);
    c.intermediate_size = file.count("intermediate_size", 2048);
    c.num_hidden_layers = file.count("num_hidden_layers", 12);
    c.num_attention_heads = file.count("num_attention_heads", 8);
    c.max_position_embeddings = file.count("max_position_embeddings", 77);
    c.projection_dim = projects ? file.count("projection_dim", 512) : 0;
    c.hidden_act = file.text("hidden_act", "quick_gelu") == "gelu" ? encode::clip_activation::gelu
                                                                   : encode::clip_activation::quick_gelu;
    c.layer_norm_eps = file.number("layer_norm_eps", 1e-5);
    c.states_before = before_last ? 1 : 0;
    return c;
}

[[nodiscard]] inline std::pair<int, int> states_of(const encode::clip_text_config& c) {
    return {c.max_position_embeddings, c.hidden_size};
}
[[nodiscard]] inline std::pair<int, int> states_of(const encode::bert_text_config& c) {
    return {c.tokens, c.hidden_size};
}
[[nodiscard]] inline std::pair<int, int> states_of(const encode::t5_text_config& c) { return {c.tokens, c.d_model}; }

/// Whether a backbone reads what the networks give: states of each text, or those of all texts, concatenated by token.
[[nodiscard]] inline bool reads_networks(const backbone_input& in, const network_configs& networks) {
    if (networks.pictures.latent_channels != in.channels) { return false; }
    int pooled = 0;
    std::vector<std::pair<int, int>> given;
    for (const text_config& text : networks.texts) {
        if (const auto* clip = std::get_if<encode::clip_text_config>(&text)) { pooled += clip->projection_dim; }
        given.push_back(std::visit([](const auto& c) { return states_of(c); }, text));
    }
    if (in.pooled != 0 && pooled != in.pooled) { return false; }
    if (given.size() > in.states.size() && in.states.size() == 1) {
        for (; given.size() != 1 && given.back().first == given.front().first; given.pop_back()) {
            given.front().second += given.back().second;
        }
    }
    return given == in.states;
}

} // namespace detail

PULSE_INLINE std::optional<network_configs> read_networks(const std::filesystem::path& folder,
                                                          const backbone_config& backbone) {
    if (!std::filesystem::exists(folder / "model_index.json")) { return std::nullopt; }
    const pipeline index = read_pipeline(folder);
    const bool vae = index.find("vae") != nullptr;
    const bool text = index.find("text_encoder") != nullptr;
    if ((!vae && !text) || (!text && index.find("text_encoder_2") != nullptr)) { return std::nullopt; }
    const detail::backbone_input in = std::visit([](const auto& c) { return detail::input_of(c); }, backbone);
    const label name = std::visit([](const auto& c) { return c.name; }, backbone);
    // Reads a component's config with `read` and requires that nothing in it is left over.
    const auto checked = [&](const char* component, const auto& read) {
        const detail::config_file file{folder / component / "config.json"};
        const auto config = read(detail::config_reader{file});
        const auto require = [&](const auto& c) { detail::require_whole(config_of(c), file); };
        if constexpr (std::is_same_v<std::remove_const_t<decltype(config)>, text_config>) {
            std::visit(require, config);
        } else {
            require(config);
        }
        return config;
    };
    network_configs all{.pictures = {.name = name + "_pixels",
                                     .sample_size = in.size,
                                     .in_channels = in.channels,
                                     .out_channels = in.channels,
                                     .latent_channels = in.channels,
                                     .block_out_channels = {in.channels},
                                     .norm_num_groups = 1,
                                     .scaling_factor = 1.0},
                        .encodes_pictures = vae};
    if (vae) {
        all.pictures = checked("vae", [&](const detail::config_reader& file) {
            return detail::autoencoder_of(file, name + "_vae", in.size);
        });
    } else if (in.channels != 1 && in.channels != 3) {
        return std::nullopt; // these are not pixels
    }
    if (flaw_of(all.pictures) != encode::autoencoder_flaw::none) {
        throw input_error("'" + (folder / "vae" / "config.json").string() +
                          "': norm_num_groups or another number does not fit block_out_channels");
    }
    for (const char* const component : {"text_encoder", "text_encoder_2"}) {
        if (index.find(component) == nullptr) { continue; }
        const std::size_t at = std::min(all.texts.size(), in.states.size() - 1);
        all.texts.push_back(checked(component, [&](const detail::config_reader& file) {
            return detail::text_of(file, name + "_" + component, in.states.empty() ? 77 : in.states[at].first,
                                   in.pooled != 0);
        }));
    }
    if (!detail::reads_networks(in, all)) { return std::nullopt; }
    return all;
}

PULSE_INLINE void read_long_captions(backbone_config& backbone, network_configs& networks, int chunks) {
    constexpr int most = 64;
    if (chunks < 1 || chunks > most) {
        throw input_error("captions must have 1 to " + std::to_string(most) + " chunks, not " + std::to_string(chunks));
    }
    auto* const unet = std::get_if<unet_config>(&backbone);
    if (unet == nullptr || !unet->reads_text()) {
        throw input_error("captions in chunks need a UNet that reads text, which this backbone is not");
    }
    if (networks.texts.empty()) { throw input_error("captions in chunks need text encoders, but the folder has none"); }
    std::optional<int> tokens;
    for (const text_config& one : networks.texts) {
        const auto* const clip = std::get_if<encode::clip_text_config>(&one);
        if (clip == nullptr || tokens.value_or(clip->max_position_embeddings) != clip->max_position_embeddings) {
            throw input_error("captions in chunks need CLIP text encoders only, all for texts of one length");
        }
        tokens = clip->max_position_embeddings;
    }
    unet->context_tokens = encode::text_chunks{*tokens, chunks}.length();
    networks.chunks = chunks;
}

} // namespace pulse::diffusers
