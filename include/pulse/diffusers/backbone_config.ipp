#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/config_key.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

namespace detail {

using nlohmann::json;

/// A list of value(level) for each level.
template <class Value>
[[nodiscard]] json by_level(const unet_config& c, const Value& value) {
    json list = json::array();
    for (int level = 0; level != c.levels(); ++level) { list.push_back(value(level)); }
    return list;
}

[[nodiscard]] inline json block_types(const unet_config& c, const char* direction) {
    return by_level(c, [&](int level) {
        const int at = direction == std::string{"Up"} ? c.levels() - 1 - level : level;
        const char* const kind = c.has_transformers(at) ? "CrossAttn" : c.attends(at) ? "Attn" : "";
        return std::string{kind} + direction + "Block2D";
    });
}

/// sample_size is the size of the pictures trained on; the network reads others (read_sample_size).
[[nodiscard]] inline bool may_be_size(const json& found) {
    return found.is_null() || found.is_number_integer() || (found.is_array() && found.size() == 2);
}

/// Keys that both classes of UNets have.
[[nodiscard]] inline std::vector<config_key> common_keys(const unet_config& c) {
    const bool text = c.reads_text();
    const int unnamed = text ? 4 : 3;
    return {{"sample_size", c.sample_size, nullptr, {}, false, may_be_size},
            {"in_channels", c.in_channels, unnamed},
            {"out_channels", c.out_channels, unnamed},
            {"center_input_sample", false, false},
            {"flip_sin_to_cos", c.flip_sin_to_cos, true},
            {"freq_shift", c.freq_shift, 0},
            {"down_block_types", block_types(c, "Down"), nullptr, {}, true},
            {"up_block_types", block_types(c, "Up"), nullptr, {}, true},
            {"block_out_channels", by_level(c, [&](int level) { return c.channels(level); }), nullptr, {}, true},
            {"layers_per_block", by_level(c, [&](int level) { return c.layers(level); }), 2},
            {"downsample_padding", c.downsample_padding, 1},
            {"mid_block_scale_factor", 1, 1},
            {"dropout", 0.0, 0.0},
            {"act_fn", "silu", "silu", {"swish"}},
            {"norm_num_groups", c.norm_num_groups, 32},
            {"norm_eps", c.norm_eps, 1e-5},
            {"resnet_time_scale_shift", "default", "default"},
            {"time_embedding_type", "positional", "positional"},
            {"class_embed_type", nullptr, nullptr},
            {"num_class_embeds", nullptr, nullptr}};
}

/// Number of blocks of a level's transformers: one number, or one for each transformer.
[[nodiscard]] inline json blocks_of(const one_or_each<int>& transformers) {
    if (!transformers.is_list()) { return transformers[0]; }
    json list = json::array();
    for (int j = 0; j != transformers.count; ++j) { list.push_back(transformers[j]); }
    return list;
}

/// value(level) where a transformer reads it, else null.
template <class Value>
[[nodiscard]] json by_transformer(const unet_config& c, const Value& value) {
    return by_level(c, [&](int level) {
        const bool middle = level == c.levels() - 1 && c.mid_block_transformer_layers != 0;
        return c.has_transformers(level) || middle ? json(value(level)) : json(nullptr);
    });
}

/// 0 x 0 if it is null or absent.
[[nodiscard]] inline extent sample_size_of(const io::json_field& config) {
    if (!config.has("sample_size") || config["sample_size"].value().is_null()) { return {}; }
    const io::json_field field = config["sample_size"];
    if (!field.value().is_array()) { return {field.count(), field.count()}; }
    if (field.size() != 2) { field.fail("must be a height and a width"); }
    return {field.entry(0).count(), field.entry(1).count()};
}

} // namespace detail

PULSE_INLINE extent read_sample_size(const std::filesystem::path& folder) {
    const detail::config_file file{folder / "config.json"};
    return detail::sample_size_of(file.root());
}

PULSE_INLINE component_config config_of(const unet_config& c) {
    using nlohmann::json;
    component_config config{c.name.str(), c.reads_text() ? "UNet2DConditionModel" : "UNet2DModel"};
    config.keys = detail::common_keys(c);
    config.ignored = {"num_train_timesteps"};
    const auto add = [&](config_key key) { config.keys.push_back(std::move(key)); };
    if (!c.reads_text()) {
        bool same = true;
        bool attends = c.mid_block_attention;
        for (int level = 0; level != c.levels(); ++level) { attends = attends || c.attends(level); }
        const json head = c.attention_head_dim == 0 ? json(nullptr) : json(c.attention_head_dim);
        if (attends) {
            add({"attention_head_dim", head, 8});
        } else {
            config.ignored.push_back("attention_head_dim");
        }
        for (int level = 1; level < c.levels(); ++level) { same = same && c.layers(level) == c.layers(0); }
        if (!same || c.mid_block_resnets == 1) {
            throw input_error("the model " + c.name.str() +
                              " does not fit diffusers' UNet2DModel: its levels must have the same number of ResNet "
                              "blocks, its middle two or none");
        }
        // Keys of later versions of the class.
        if (c.mid_block_resnets == 0) {
            add({"mid_block_type", nullptr, "UNetMidBlock2D"});
            config.ignored.push_back("add_attention");
        } else {
            config.unwritten.push_back({"mid_block_type", "UNetMidBlock2D", "UNetMidBlock2D"});
            add({"add_attention", c.mid_block_attention, true});
        }
        config.unwritten.push_back({"time_embedding_dim", nullptr, nullptr});
        add({"attn_norm_num_groups", nullptr, nullptr, {c.norm_num_groups}});
        add({"downsample_type", "conv", "conv"});
        add({"upsample_type", "conv", "conv"});
        return config;
    }

    const int last = c.levels() - 1;
    const bool middle = c.mid_block_transformer_layers != 0;
    if (c.mid_block_resnets == 2 &&
        (!middle || (c.has_transformers(last) && c.transformers(last, false)[0] != c.mid_block_transformer_layers))) {
        throw input_error(
            "the model " + c.name.str() +
            " does not fit diffusers' UNet2DConditionModel: its middle must have transformer blocks, as many "
            "as the last level if that has any");
    }
    // In this class attention_head_dim holds the number of heads, except at levels that attend only to pixels.
    json heads = detail::by_transformer(c, [&](int level) { return c.transformer_heads_at(level); });
    // On the way up the class reads this list from its beginning, so the mirrored level must have the same value.
    for (int level = 0; level != c.levels(); ++level) {
        if (!c.attends(level)) { continue; }
        for (const int at : {level, last - level}) {
            json& said = heads[static_cast<std::size_t>(at)];
            if (!said.is_null() && said != c.attention_head_dim) {
                throw input_error("the model " + c.name.str() +
                                  " does not fit diffusers' UNet2DConditionModel: a level that attends only to "
                                  "pixels and its mirrored level must have the same attention_head_dim");
            }
            said = c.attention_head_dim;
        }
    }
    add({"attention_head_dim", heads, 8});
    add({"num_attention_heads", nullptr, nullptr});
    add({"cross_attention_dim", detail::by_transformer(c, [&](int) { return c.cross_attention_dim; }), 1280});
    const json down = detail::by_transformer(c, [&](int level) {
        return c.has_transformers(level) ? detail::blocks_of(c.transformers(level, false))
                                         : json(c.mid_block_transformer_layers);
    });
    // If the last level has no transformers, the middle reads only the first number of that level's list.
    const auto same_blocks = [down, last_reads = c.has_transformers(last)](json found) {
        if (!last_reads && found.is_array() && !found.empty() && found.back().is_array() && !found.back().empty()) {
            found.back() = json(found.back().front());
        }
        return detail::same_value(down, found);
    };
    add({"transformer_layers_per_block", down, 1, {}, false, same_blocks});
    json up = nullptr;
    if (c.reverse_transformer_layers_per_block.is_list()) {
        up = detail::by_level(c, [&](int level) {
            const int at = last - level;
            return c.has_transformers(at) ? detail::blocks_of(c.transformers(at, true)) : json(nullptr);
        });
    }
    add({"reverse_transformer_layers_per_block", up, nullptr, {}, true});
    add({"use_linear_projection", c.use_linear_projection, false});
    const json kinds[]{nullptr, "UNetMidBlock2D", "UNetMidBlock2DCrossAttn"}; // for no, one and two ResNet blocks
    add({"mid_block_type", kinds[c.mid_block_resnets], kinds[2]});
    add({"only_cross_attention", false, false});
    add({"mid_block_only_cross_attention", nullptr, nullptr, {false}});
    add({"dual_cross_attention", false, false});
    add({"cross_attention_norm", nullptr, nullptr});
    add({"attention_type", "default", "default"});
    if (c.encoder_hid_dim != 0) {
        add({"encoder_hid_dim", c.encoder_hid_dim, nullptr});
        add({"encoder_hid_dim_type", "text_proj", "text_proj", {nullptr}}); // the class reads null as this
    } else {
        add({"encoder_hid_dim", nullptr, nullptr});
        add({"encoder_hid_dim_type", nullptr, nullptr});
    }
    for (const char* const name :
         {"time_embedding_dim", "time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim"}) {
        add({name, nullptr, nullptr});
    }
    add({"resnet_skip_time_act", false, false});
    add({"resnet_out_scale_factor", 1.0, 1.0});
    add({"conv_in_kernel", 3, 3});
    add({"conv_out_kernel", 3, 3});
    add({"class_embeddings_concat", false, false});
    if (c.adds_embedding()) {
        add({"addition_embed_type", "text_time", nullptr});
        add({"addition_time_embed_dim", c.addition_time_embed_dim, nullptr});
        add({"projection_class_embeddings_input_dim", c.projection_class_embeddings_input_dim, nullptr});
    } else {
        add({"addition_embed_type", nullptr, nullptr});
        // Not read without an added embedding.
        config.ignored.insert(config.ignored.end(),
                              {"addition_time_embed_dim", "projection_class_embeddings_input_dim"});
    }
    // The type in which scores are summed, and the heads of another kind of added embedding.
    config.ignored.insert(config.ignored.end(), {"upcast_attention", "addition_embed_type_num_heads"});
    // Keys that diffusers' EMAModel writes.
    config.ignored.insert(config.ignored.end(), {"decay", "min_decay", "optimization_step", "update_after_step",
                                                 "use_ema_warmup", "inv_gamma", "power"});
    return config;
}

PULSE_INLINE component_config control_config_of(const unet_config& c) {
    const std::string name = "controlnet_" + c.name.str();
    bool same = true;
    for (int level = 1; level < c.levels(); ++level) { same = same && c.layers(level) == c.layers(0); }
    if (!c.reads_text() || !same || c.mid_block_resnets == 0 || c.encoder_hid_dim != 0) {
        throw input_error("the model " + name +
                          " does not fit diffusers' ControlNetModel: its UNet must read text without encoder_hid_dim, "
                          "have the same number of ResNet blocks at every level, and have a middle");
    }
    component_config config = config_of(c);
    config.model = name;
    config.class_name = "ControlNetModel";
    // Keys that the class takes over from the UNet: those of the encoder and the middle.
    constexpr std::array shared{
        // of the input and of embeddings
        "in_channels", "flip_sin_to_cos", "freq_shift", "class_embed_type", "num_class_embeds", "addition_embed_type",
        "addition_time_embed_dim", "projection_class_embeddings_input_dim", "encoder_hid_dim", "encoder_hid_dim_type",
        // of levels and the middle
        "down_block_types", "mid_block_type", "block_out_channels", "layers_per_block", "downsample_padding",
        "mid_block_scale_factor", "act_fn", "norm_num_groups", "norm_eps", "resnet_time_scale_shift",
        // of transformers
        "only_cross_attention", "cross_attention_dim", "transformer_layers_per_block", "attention_head_dim",
        "num_attention_heads", "use_linear_projection"};
    std::erase_if(config.keys,
                  [&](const config_key& key) { return std::ranges::find(shared, key.name) == shared.end(); });
    const nlohmann::json widths{16, 32, 96, 256};
    config.keys.insert(config.keys.end(), {{"conditioning_channels", 3, 3},
                                           {"conditioning_embedding_out_channels", widths, widths, {}, true},
                                           {"controlnet_conditioning_channel_order", "rgb", "rgb"},
                                           {"global_pool_conditions", false, false}});
    return config;
}

PULSE_INLINE component_config config_of(const hunyuan_dit_config& c) {
    const auto hidden = [c](double ratio) { return static_cast<int>(c.hidden_size * ratio); };
    double ratio = std::ceil(1e4 * c.mlp_hidden / c.hidden_size) / 1e4; // usually the shortest that gives mlp_hidden
    if (hidden(ratio) != c.mlp_hidden) { ratio = (c.mlp_hidden + 0.5) / c.hidden_size; }
    component_config config{c.name.str(), "HunyuanDiT2DModel"};
    config.keys = {{"num_attention_heads", c.num_attention_heads, 16},
                   {"attention_head_dim", c.hidden_size / c.num_attention_heads, 88},
                   {"in_channels", c.in_channels, nullptr},
                   {"patch_size", c.patch_size, nullptr},
                   {"activation_fn", "gelu-approximate", "gelu-approximate"},
                   {"sample_size", c.sample_size, 32, {}, false, detail::may_be_size},
                   {"hidden_size", c.hidden_size, 1152},
                   {"num_layers", c.num_layers, 28},
                   {"mlp_ratio",
                    ratio,
                    4.0,
                    {},
                    false,
                    [hidden, c](const nlohmann::json& found) {
                        if (!found.is_number()) { return false; }
                        const double value = found.get<double>();
                        return value > 0.0 && value < 1e4 && hidden(value) == c.mlp_hidden;
                    }},
                   {"learn_sigma", true, true},
                   {"cross_attention_dim", c.cross_attention_dim, 1024},
                   {"norm_type", "layer_norm", "layer_norm"},
                   {"cross_attention_dim_t5", c.cross_attention_dim_t5, 2048},
                   {"pooled_projection_dim", c.cross_attention_dim, 1024},
                   {"text_len", c.text_len, 77},
                   {"text_len_t5", c.text_len_t5, 256},
                   {"use_style_cond_and_image_meta_size", c.use_style_cond_and_image_meta_size, true}};
    return config;
}

PULSE_INLINE component_config config_of(const uvit_config& c) {
    component_config config{c.name.str(), "UViT"};
    config.keys = {{"img_size", c.img_size, 224},
                   {"patch_size", c.patch_size, 16},
                   {"in_chans", c.in_chans, 3},
                   {"embed_dim", c.embed_dim, 768},
                   {"depth", c.depth, 12},
                   {"num_heads", c.num_heads, 12},
                   {"mlp_ratio", 4.0, 4.0},
                   {"qkv_bias", false, false},
                   {"qk_scale", nullptr, nullptr},
                   {"mlp_time_embed", false, false},
                   {"num_classes", c.num_classes == 0 ? -1 : c.num_classes, -1},
                   {"conv", c.conv, true},
                   {"skip", true, true}};
    config.ignored = {"use_checkpoint"};
    return config;
}

} // namespace pulse::diffusers
