#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_reader.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/diffusers/single_file.hpp>

namespace pulse::diffusers {

namespace detail {

inline constexpr std::array<inner_names, 6> resnet_names{{{"in_layers.0", "norm1"},
                                                          {"in_layers.2", "conv1"},
                                                          {"emb_layers.1", "time_emb_proj"},
                                                          {"out_layers.0", "norm2"},
                                                          {"out_layers.3", "conv2"},
                                                          {"skip_connection", "conv_shortcut"}}};
inline constexpr std::array<inner_names, 1> picture_resnet_names{{{"nin_shortcut", "conv_shortcut"}}};
/// Names from before diffusers 0.18 come last: a tensor of a file gets the first name that fits.
inline constexpr std::array<inner_names, 9> picture_attention_names{{{"norm", "group_norm"},
                                                                     {"q", "to_q"},
                                                                     {"k", "to_k"},
                                                                     {"v", "to_v"},
                                                                     {"proj_out", "to_out.0"},
                                                                     {"q", "query"},
                                                                     {"k", "key"},
                                                                     {"v", "value"},
                                                                     {"proj_out", "proj_attn"}}};
inline constexpr std::array<inner_names, 11> text_layer_names{{{"ln_1", "layer_norm1"},
                                                               {"ln_2", "layer_norm2"},
                                                               {"mlp.c_fc", "mlp.fc1"},
                                                               {"mlp.c_proj", "mlp.fc2"},
                                                               {"attn.out_proj", "self_attn.out_proj"},
                                                               {"attn.in_proj_weight", "self_attn.q_proj.weight", 0},
                                                               {"attn.in_proj_weight", "self_attn.k_proj.weight", 1},
                                                               {"attn.in_proj_weight", "self_attn.v_proj.weight", 2},
                                                               {"attn.in_proj_bias", "self_attn.q_proj.bias", 0},
                                                               {"attn.in_proj_bias", "self_attn.k_proj.bias", 1},
                                                               {"attn.in_proj_bias", "self_attn.v_proj.bias", 2}}};

/// What follows `begin` in a name that equals it or continues with a '.'.
[[nodiscard]] inline std::optional<std::string_view> rest_of(std::string_view name, std::string_view begin) {
    if (!name.starts_with(begin)) { return std::nullopt; }
    name.remove_prefix(begin.size());
    if (!name.empty() && name.front() != '.') { return std::nullopt; }
    return name;
}

/// transformers 5.6 and later may leave this out.
inline constexpr std::string_view text_prefix = "text_model.";

} // namespace detail

PULSE_INLINE single_file_layout::single_file_layout(const std::filesystem::path& folder, std::string_view component) {
    const pipeline index = read_pipeline(folder);
    const pipeline_component* const unet = index.find("unet");
    if (!index.class_name.starts_with("StableDiffusion") || unet == nullptr ||
        unet->class_name != "UNet2DConditionModel") {
        throw input_error("'" + (folder / "model_index.json").string() +
                          "': checkpoints of one file cannot hold a pipeline of the class " +
                          io::printable(index.class_name) + ", only Stable Diffusion 1.x, 2.x and XL");
    }
    const pipeline_component* const found = index.find(component);
    const std::string kind = found == nullptr ? std::string{} : found->class_name;
    const auto require_class = [&](bool fits) {
        if (fits) { return; }
        throw input_error("'" + (folder / "model_index.json").string() + "': " + std::string{component} +
                          (kind.empty() ? " is missing" : " has the class " + io::printable(kind)) +
                          ", which checkpoints of one file do not allow");
    };
    if (component == "unet") {
        root_ = "model.diffusion_model.";
        add_unet(folder / "unet");
        return;
    }
    if (component == "vae") {
        require_class(kind == "AutoencoderKL");
        root_ = "first_stage_model.";
        add_autoencoder(folder / "vae");
        return;
    }
    const bool second = component == "text_encoder_2";
    const bool projects = kind == "CLIPTextModelWithProjection";
    require_class((second || component == "text_encoder") && (projects || kind == "CLIPTextModel"));
    is_text_ = true;
    const bool xl = index.class_name.starts_with("StableDiffusionXL");
    const detail::config_file file{folder / component / "config.json"};
    const detail::config_reader config{file};
    const bool open_clip = second || (!xl && config.text("hidden_act", "quick_gelu") == "gelu");
    // SDXL's refiner has only text_encoder_2.
    const bool behind = second && index.find("text_encoder") != nullptr;
    root_ = xl ? std::string{"conditioner.embedders."} + (behind ? "1." : "0.") : "cond_stage_model.";
    root_ += open_clip ? "model." : "transformer.";
    if (open_clip) { add_open_clip(config.count("num_hidden_layers", 12), projects); }
}

PULSE_INLINE void single_file_layout::add_unet(const std::filesystem::path& folder) {
    const detail::config_file file{folder / "config.json"};
    const detail::config_reader config{file};
    const auto levels = static_cast<int>(config.list("block_out_channels").size());
    const std::vector<io::json_field> ups = config.list("up_block_types");
    if (levels == 0 || static_cast<int>(ups.size()) != levels) {
        config.root()["up_block_types"].fail("must be as long as block_out_channels");
    }
    const bool classes = config.text("addition_embed_type", "").empty();
    const std::string labels = classes ? "class_embedding." : "add_embedding.";
    blocks_ = {{"time_embed.0", "time_embedding.linear_1"},
               {"time_embed.2", "time_embedding.linear_2"},
               {"label_emb.0.0", labels + "linear_1"},
               {"label_emb.0.2", labels + "linear_2"},
               {"input_blocks.0.0", "conv_in"},
               {"middle_block.0", "mid_block.resnets.0", detail::resnet_names},
               {"middle_block.1", "mid_block.attentions.0"},
               {"middle_block.2", "mid_block.resnets.1", detail::resnet_names},
               {"out.0", "conv_norm_out"},
               {"out.2", "conv_out"}};
    const auto numbered = [](const char* name, int number) { return name + std::to_string(number); };
    const auto add_layer = [&](const std::string& stored, const std::string& level, int layer) {
        blocks_.push_back({stored + ".0", level + numbered(".resnets.", layer), detail::resnet_names});
        blocks_.push_back({stored + ".1", level + numbered(".attentions.", layer)});
    };
    int at = 1;
    for (int level = 0; level != levels; ++level) {
        const std::string own = numbered("down_blocks.", level);
        const int layers = config.count_at("layers_per_block", level, 2);
        for (int layer = 0; layer != layers; ++layer) { add_layer(numbered("input_blocks.", at++), own, layer); }
        if (level + 1 != levels) {
            blocks_.push_back({numbered("input_blocks.", at++) + ".0.op", own + ".downsamplers.0.conv"});
        }
    }
    at = 0;
    for (int level = 0; level != levels; ++level) {
        const std::string own = numbered("up_blocks.", level);
        const int layers = config.count_at("layers_per_block", levels - 1 - level, 2) + 1;
        if (level + 1 != levels) { // first: add_layer's ".1" would match it, too
            const bool attends = ups[static_cast<std::size_t>(level)].text().find("Attn") != std::string::npos;
            blocks_.push_back({numbered("output_blocks.", at + layers - 1) + (attends ? ".2.conv" : ".1.conv"),
                               own + ".upsamplers.0.conv"});
        }
        for (int layer = 0; layer != layers; ++layer) { add_layer(numbered("output_blocks.", at++), own, layer); }
    }
}

PULSE_INLINE void single_file_layout::add_autoencoder(const std::filesystem::path& folder) {
    const detail::config_file file{folder / "config.json"};
    const detail::config_reader config{file};
    const auto levels = std::max(1, static_cast<int>(config.list("block_out_channels").size()));
    const int layers = config.count("layers_per_block", 1);
    for (const char* const side : {"encoder", "decoder"}) {
        const bool encodes = side == std::string_view{"encoder"};
        const auto add = [&](const std::string& stored, const std::string& own,
                             std::span<const detail::inner_names> inside = {}) {
            blocks_.push_back({side + ("." + stored), side + ("." + own), inside});
        };
        add("norm_out", "conv_norm_out");
        add("mid.block_1", "mid_block.resnets.0", detail::picture_resnet_names);
        add("mid.block_2", "mid_block.resnets.1", detail::picture_resnet_names);
        add("mid.attn_1", "mid_block.attentions.0", detail::picture_attention_names);
        blocks_.back().as_convolution = true;
        for (int level = 0; level != levels; ++level) {
            // The file numbers levels from the largest, on both sides.
            const std::string stored = (encodes ? "down." : "up.") + std::to_string(level) + ".";
            const std::string own =
                encodes ? "down_blocks." + std::to_string(level) : "up_blocks." + std::to_string(levels - 1 - level);
            for (int layer = 0; layer != layers + (encodes ? 0 : 1); ++layer) {
                add(stored + "block." + std::to_string(layer), own + ".resnets." + std::to_string(layer),
                    detail::picture_resnet_names);
            }
            add(stored + (encodes ? "downsample.conv" : "upsample.conv"),
                own + (encodes ? ".downsamplers.0.conv" : ".upsamplers.0.conv"));
        }
    }
}

PULSE_INLINE void single_file_layout::add_open_clip(int layers, bool projects) {
    only_blocks_ = true;
    blocks_ = {{"positional_embedding", "text_model.embeddings.position_embedding.weight"},
               {"token_embedding", "text_model.embeddings.token_embedding"},
               {"ln_final", "text_model.final_layer_norm"}};
    if (projects) { blocks_.push_back({"text_projection", "text_projection.weight", {}, true}); }
    for (int layer = 0; layer != layers; ++layer) {
        const std::string number = std::to_string(layer);
        blocks_.push_back(
            {"transformer.resblocks." + number, "text_model.encoder.layers." + number, detail::text_layer_names});
    }
}

PULSE_INLINE std::vector<stored_tensor> single_file_layout::tensors_in(std::string_view stored) const {
    stored.remove_prefix(root_.size());
    for (const block& one : blocks_) {
        const auto rest = detail::rest_of(stored, one.stored);
        if (!rest) { continue; }
        std::vector<stored_tensor> all;
        for (const detail::inner_names& inner : one.inside) {
            const auto end = rest->empty() ? std::nullopt : detail::rest_of(rest->substr(1), inner.stored);
            if (!end) { continue; }
            all.push_back(one.named(one.own + "." + std::string{inner.own} + std::string{*end}));
            all.back().part = inner.part;
            if (inner.part < 0) { return all; }
        }
        if (all.empty()) { all.push_back(one.named(one.own + std::string{*rest})); }
        return all;
    }
    if (only_blocks_) { return {}; }
    return {{.name = std::string{stored}}};
}

PULSE_INLINE stored_tensor single_file_layout::place_of(std::string_view name) const {
    std::string own{name};
    if (is_text_ && !own.starts_with(detail::text_prefix) && !own.starts_with("text_projection")) {
        own.insert(0, detail::text_prefix);
    }
    for (const block& one : blocks_) {
        const auto rest = detail::rest_of(own, one.own);
        if (!rest) { continue; }
        stored_tensor found = one.named(root_ + one.stored + std::string{*rest});
        for (const detail::inner_names& inner : one.inside) {
            const auto end = rest->empty() ? std::nullopt : detail::rest_of(rest->substr(1), inner.own);
            if (!end) { continue; }
            found.name = root_ + one.stored + "." + std::string{inner.stored} + std::string{*end};
            found.part = inner.part;
            break;
        }
        return found;
    }
    if (only_blocks_) {
        throw input_error("a checkpoint of one file has no place for the tensor '" + io::printable(own, 95) + "'");
    }
    return {.name = root_ + own};
}

} // namespace pulse::diffusers
