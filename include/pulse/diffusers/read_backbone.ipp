#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_reader.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/one_or_each.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

namespace detail {

/// One number, or a list of them.
[[nodiscard]] inline one_or_each<int> counts_of(const json_field& from) {
    return from.value().is_array() ? config_reader::counts_in(from) : one_or_each<int>(config_reader::count_in(from));
}

/// Blocks of a level's transformers: the key has a list with an entry for each of `levels`, or one number for all.
[[nodiscard]] inline one_or_each<int> transformers_at(const config_reader& file, const char* key, int levels,
                                                      int level) {
    const std::vector<json_field> list = file.list(key);
    if (list.empty()) { return file.count(key, 1); }
    if (static_cast<int>(list.size()) != levels) {
        file.root()[key].fail("must have as many values as block_out_channels");
    }
    return counts_of(list[static_cast<std::size_t>(level)]);
}

/// What a diffusers config says of a UNet; the rest of the config is compared afterwards.
[[nodiscard]] inline unet_config unet_of(const config_reader& file, const label& name) {
    const bool text = file.text("_class_name", "") == "UNet2DConditionModel";
    unet_config c{.name = name};
    const one_or_each<int> channels = config_reader::counts_in(file.root()["block_out_channels"]);
    const int levels = channels.count;
    c.block_out_channels = channels.values;
    const std::vector<json_field> kinds = config_reader::entries(file.root()["down_block_types"]);
    const auto is = [&](int level, std::string_view kind) {
        const auto at = static_cast<std::size_t>(level);
        return at < kinds.size() && kinds[at].text() == kind;
    };
    const auto reads = [&](int level) { return is(level, "CrossAttnDownBlock2D"); };
    c.in_channels = file.count("in_channels", text ? 4 : 3);
    c.out_channels = file.count("out_channels", text ? 4 : 3);
    c.layers_per_block = file.says("layers_per_block") ? counts_of(file.root()["layers_per_block"]) : 2;
    c.norm_num_groups = file.count("norm_num_groups", 32);
    c.norm_eps = file.number("norm_eps", 1e-5);
    c.downsample_padding = file.number("downsample_padding", 1) == 0 ? 0 : 1;
    c.flip_sin_to_cos = file.flag("flip_sin_to_cos", true);
    c.freq_shift = static_cast<int>(std::clamp(file.number("freq_shift", 0), 0.0, 1e6));
    const bool one_head = !text && file.root().has("attention_head_dim") && !file.says("attention_head_dim");
    c.attention_head_dim = one_head ? 0 : file.count_at("attention_head_dim", 0, 8);
    const std::string middle = file.text("mid_block_type", text ? "UNetMidBlock2DCrossAttn" : "UNetMidBlock2D");
    c.mid_block_resnets = middle.empty() ? 0 : text && middle == "UNetMidBlock2D" ? 1 : 2;
    c.mid_block_attention = !text && c.mid_block_resnets == 2 && file.flag("add_attention", true);
    for (int level = 0; level != levels; ++level) {
        c.attention[static_cast<std::size_t>(level)] = is(level, "AttnDownBlock2D");
        if (is(level, "AttnDownBlock2D") && text) {
            c.attention_head_dim = file.count_at("attention_head_dim", level, 8);
        }
    }
    const int smallest = 1 << (levels - 1);
    const extent trained_on = sample_size_of(file.root());
    c.sample_size =
        std::clamp(trained_on.height == 0 ? 64 : trained_on.height, smallest, 1 << 14) / smallest * smallest;
    if (!text) { return c; }

    constexpr const char* down = "transformer_layers_per_block";
    constexpr const char* up = "reverse_transformer_layers_per_block";
    c.transformer_layers_per_block.count = c.transformer_heads.count = levels;
    c.reverse_transformer_layers_per_block.count = file.says(up) ? levels : 0;
    int reader = levels - 1; // a level whose transformers read text
    for (int level = 0; level != levels; ++level) {
        const auto at = static_cast<std::size_t>(level);
        c.transformer_heads.values[at] = file.count_at("attention_head_dim", level, 8);
        if (!reads(level)) { continue; }
        reader = level;
        c.transformer_layers_per_block.values[at] = transformers_at(file, down, levels, level);
        const int mirrored = levels - 1 - level;
        if (file.says(up)) {
            c.reverse_transformer_layers_per_block.values[static_cast<std::size_t>(mirrored)] =
                transformers_at(file, up, levels, mirrored);
        }
    }
    if (c.mid_block_resnets == 2) {
        c.mid_block_transformer_layers = transformers_at(file, down, levels, levels - 1)[0];
    }
    c.cross_attention_dim = file.count_at("cross_attention_dim", reader, 1280);
    c.encoder_hid_dim = file.says("encoder_hid_dim") ? file.count("encoder_hid_dim") : 0;
    c.use_linear_projection = file.flag("use_linear_projection", false);
    if (file.text("addition_embed_type", "") == "text_time") {
        c.projection_class_embeddings_input_dim = file.count("projection_class_embeddings_input_dim");
        c.addition_time_embed_dim = file.count("addition_time_embed_dim");
    }
    return c;
}

[[nodiscard]] inline hunyuan_dit_config hunyuan_dit_of(const config_reader& file, const label& name) {
    hunyuan_dit_config c{.name = name};
    c.sample_size = file.count("sample_size", 32);
    c.patch_size = file.count("patch_size");
    c.in_channels = file.count("in_channels");
    c.hidden_size = file.count("hidden_size", 1152);
    c.num_layers = file.count("num_layers", 28);
    c.num_attention_heads = file.count("num_attention_heads", 16);
    c.mlp_hidden = static_cast<int>(std::clamp(c.hidden_size * file.number("mlp_ratio", 4.0), 0.0, 1e9));
    c.cross_attention_dim = file.count("cross_attention_dim", 1024);
    c.cross_attention_dim_t5 = file.count("cross_attention_dim_t5", 2048);
    c.text_len = file.count("text_len", 77);
    c.text_len_t5 = file.count("text_len_t5", 256);
    c.use_style_cond_and_image_meta_size = file.flag("use_style_cond_and_image_meta_size", true);
    const int patches = 64 / c.patch_size; // whole patches along 512 pixels
    c.rotary_span = patches;
    return c;
}

[[nodiscard]] inline uvit_config uvit_of(const config_reader& file, const label& name) {
    return {.name = name,
            .img_size = file.count("img_size", 224),
            .patch_size = file.count("patch_size", 16),
            .in_chans = file.count("in_chans", 3),
            .embed_dim = file.count("embed_dim", 768),
            .depth = file.count("depth", 12),
            .num_heads = file.count("num_heads", 12),
            .num_classes = static_cast<int>(std::clamp(file.number("num_classes", -1), 0.0, 1e6)),
            .conv = file.flag("conv", true)};
}

// Why pulse cannot build a config although it knows its keys.

[[nodiscard]] constexpr const char* why(unet_flaw flaw) noexcept {
    switch (flaw) {
    case unet_flaw::none: return nullptr;
    case unet_flaw::groups: return "norm_num_groups does not divide every number of block_out_channels";
    case unet_flaw::heads: return "attention_head_dim does not fit block_out_channels";
    case unet_flaw::sinusoid: return "the first number of block_out_channels is odd or too small for freq_shift";
    case unet_flaw::transformers:
        return "transformer_layers_per_block does not fit layers_per_block, or its lists have no "
               "reverse_transformer_layers_per_block";
    case unet_flaw::text: return "no block has a transformer, but pulse's UNets that read text need one";
    default:
        return "a number does not fit the others: layers_per_block, freq_shift, addition_time_embed_dim or "
               "projection_class_embeddings_input_dim";
    }
}
[[nodiscard]] constexpr const char* why(hunyuan_dit_flaw flaw) noexcept {
    switch (flaw) {
    case hunyuan_dit_flaw::none: return nullptr;
    case hunyuan_dit_flaw::patches: return "patch_size does not divide sample_size";
    case hunyuan_dit_flaw::depth: return "num_layers is odd or below 4";
    default:
        return "hidden_size does not make heads of a multiple of 4 features, or 8 does not divide "
               "cross_attention_dim_t5";
    }
}
[[nodiscard]] constexpr const char* why(uvit_flaw flaw) noexcept {
    switch (flaw) {
    case uvit_flaw::none: return nullptr;
    case uvit_flaw::patches: return "patch_size does not divide img_size";
    case uvit_flaw::depth: return "depth is odd or below 2";
    default: return "num_heads does not divide embed_dim";
    }
}

/// Number of positions of a pipeline's text encoder; 77 if there is none.
[[nodiscard]] inline int text_positions(const std::filesystem::path& pipeline) {
    const std::filesystem::path file = pipeline / "text_encoder" / "config.json";
    if (!std::filesystem::exists(file)) { return 77; }
    const config_file found{file};
    return config_reader{found}.count("max_position_embeddings", 77);
}

/// SDXL's refiner reads five numbers about a picture, all others read six: the UNet's config alone does not tell.
inline void require_six_sizes(const std::filesystem::path& index) {
    const config_file found{index};
    const config_reader file{found};
    if (file.flag("requires_aesthetics_score", false)) {
        file.root()["requires_aesthetics_score"].fail(
            "is true: its UNet reads a score and five sizes, but pulse has six sizes");
    }
}

} // namespace detail

PULSE_INLINE backbone_config read_backbone(const std::filesystem::path& folder, const label& name) {
    namespace fs = std::filesystem;
    const fs::path given = folder.has_filename() ? folder : folder.parent_path();
    // What cannot be looked at is as absent: reading config.json then fails with its name.
    std::error_code unused;
    const auto exists = [&](const fs::path& path) { return fs::exists(path, unused); };
    const bool whole = exists(given / "model_index.json");
    fs::path component = given;
    for (const char* const part : {"unet", "transformer"}) {
        if ((whole || !exists(given / "config.json")) && exists(given / part)) { component = given / part; }
    }
    const detail::config_file found{component / "config.json"};
    const detail::config_reader file{found};
    const auto checked = [&](auto c) -> backbone_config {
        component_config mine{};
        try {
            mine = config_of(c);
        } catch (const input_error& e) { throw input_error(found.source() + ": " + e.what()); }
        detail::require_whole(std::move(mine), found);
        if (const char* const flaw = detail::why(flaw_of(c)); flaw != nullptr) {
            throw input_error(found.source() + ": " + flaw);
        }
        return c;
    };
    const std::string& kind = file.root()["_class_name"].text();
    if (kind == "UNet2DConditionModel" || kind == "UNet2DModel") {
        unet_config c = detail::unet_of(file, name);
        if (c.reads_text()) { c.context_tokens = detail::text_positions(component.parent_path()); }
        if (c.adds_embedding() && whole) { detail::require_six_sizes(given / "model_index.json"); }
        return checked(c);
    }
    if (kind == "HunyuanDiT2DModel") { return checked(detail::hunyuan_dit_of(file, name)); }
    if (kind == "UViT") { return checked(detail::uvit_of(file, name)); }
    file.root()["_class_name"].fail("is '" + io::printable(kind) +
                                    "'; pulse supports UNet2DModel, UNet2DConditionModel, HunyuanDiT2DModel and UViT");
}

} // namespace pulse::diffusers
