#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/core/label.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/backbone_config.hpp>
#include <pulse/diffusers/config_key.hpp>
#include <pulse/diffusers/model_header.hpp>
#include <pulse/diffusers/read_backbone.hpp>
#include <pulse/diffusers/read_networks.hpp>
#include <pulse/diffusers/text_encoder.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/bert_text.hpp>
#include <pulse/encode/clip_text.hpp>
#include <pulse/encode/t5_text.hpp>
#include <pulse/nn/hunyuan_dit.hpp>
#include <pulse/nn/one_or_each.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/uvit.hpp>

namespace pulse::diffusers {

namespace detail {

// Members of a config as in a designated initialiser.

[[nodiscard]] inline std::string code_of(int value) { return std::to_string(value); }
[[nodiscard]] inline std::string code_of(bool value) { return value ? "true" : "false"; }
[[nodiscard]] inline std::string code_of(double value) { return nlohmann::json(value).dump(); }
[[nodiscard]] inline std::string code_of(const label& value) { return '"' + value.str() + '"'; }
template <class T>
[[nodiscard]] std::string code_of(const one_or_each<T>& value);
template <class T>
[[nodiscard]] std::string list_code(const std::array<T, 8>& values, int count) {
    std::string code = "{";
    for (int i = 0; i != count; ++i) { code += (i == 0 ? "" : ", ") + code_of(values[static_cast<std::size_t>(i)]); }
    return code + "}";
}
template <class T>
[[nodiscard]] std::string code_of(const one_or_each<T>& value) {
    return value.is_list() ? list_code(value.values, value.count) : code_of(value[0]);
}

using members = std::vector<std::pair<std::string, std::string>>;

[[nodiscard]] inline members members_of(const unet_config& c) {
    members all{{"name", code_of(c.name)},
                {"sample_size", code_of(c.sample_size)},
                {"in_channels", code_of(c.in_channels)},
                {"out_channels", code_of(c.out_channels)},
                {"block_out_channels", list_code(c.block_out_channels, c.levels())},
                {"layers_per_block", code_of(c.layers_per_block)},
                {"attention", list_code(c.attention, c.levels())},
                {"mid_block_resnets", code_of(c.mid_block_resnets)},
                {"mid_block_attention", code_of(c.mid_block_attention)},
                {"attention_head_dim", code_of(c.attention_head_dim)},
                {"norm_num_groups", code_of(c.norm_num_groups)},
                {"norm_eps", code_of(c.norm_eps)},
                {"downsample_padding", code_of(c.downsample_padding)},
                {"flip_sin_to_cos", code_of(c.flip_sin_to_cos)},
                {"freq_shift", code_of(c.freq_shift)}};
    if (!c.reads_text()) { return all; }
    all.emplace_back("transformer_layers_per_block", code_of(c.transformer_layers_per_block));
    if (c.reverse_transformer_layers_per_block.is_list()) {
        all.emplace_back("reverse_transformer_layers_per_block", code_of(c.reverse_transformer_layers_per_block));
    }
    all.insert(all.end(), {{"mid_block_transformer_layers", code_of(c.mid_block_transformer_layers)},
                           {"cross_attention_dim", code_of(c.cross_attention_dim)},
                           {"encoder_hid_dim", code_of(c.encoder_hid_dim)},
                           {"context_tokens", code_of(c.context_tokens)},
                           {"transformer_heads", code_of(c.transformer_heads)},
                           {"use_linear_projection", code_of(c.use_linear_projection)}});
    if (c.adds_embedding()) {
        all.emplace_back("projection_class_embeddings_input_dim", code_of(c.projection_class_embeddings_input_dim));
        all.emplace_back("addition_time_embed_dim", code_of(c.addition_time_embed_dim));
    }
    return all;
}
[[nodiscard]] inline members members_of(const hunyuan_dit_config& c) {
    return {{"name", code_of(c.name)},
            {"sample_size", code_of(c.sample_size)},
            {"patch_size", code_of(c.patch_size)},
            {"in_channels", code_of(c.in_channels)},
            {"hidden_size", code_of(c.hidden_size)},
            {"num_layers", code_of(c.num_layers)},
            {"num_attention_heads", code_of(c.num_attention_heads)},
            {"mlp_hidden", code_of(c.mlp_hidden)},
            {"cross_attention_dim", code_of(c.cross_attention_dim)},
            {"cross_attention_dim_t5", code_of(c.cross_attention_dim_t5)},
            {"text_len", code_of(c.text_len)},
            {"text_len_t5", code_of(c.text_len_t5)},
            {"use_style_cond_and_image_meta_size", code_of(c.use_style_cond_and_image_meta_size)},
            {"rotary_span", code_of(c.rotary_span)}};
}
[[nodiscard]] inline members members_of(const uvit_config& c) {
    return {{"name", code_of(c.name)},
            {"img_size", code_of(c.img_size)},
            {"patch_size", code_of(c.patch_size)},
            {"in_chans", code_of(c.in_chans)},
            {"embed_dim", code_of(c.embed_dim)},
            {"depth", code_of(c.depth)},
            {"num_heads", code_of(c.num_heads)},
            {"num_classes", code_of(c.num_classes)},
            {"conv", code_of(c.conv)}};
}
[[nodiscard]] inline members members_of(const encode::autoencoder_config& c) {
    return {{"name", code_of(c.name)},
            {"sample_size", code_of(c.sample_size)},
            {"in_channels", code_of(c.in_channels)},
            {"out_channels", code_of(c.out_channels)},
            {"latent_channels", code_of(c.latent_channels)},
            {"block_out_channels", list_code(c.block_out_channels, c.levels())},
            {"layers_per_block", code_of(c.layers_per_block)},
            {"norm_num_groups", code_of(c.norm_num_groups)},
            {"scaling_factor", code_of(c.scaling_factor)}};
}
[[nodiscard]] inline members members_of(const encode::clip_text_config& c) {
    const bool gelu = c.hidden_act == encode::clip_activation::gelu;
    return {{"name", code_of(c.name)},
            {"vocab_size", code_of(c.vocab_size)},
            {"hidden_size", code_of(c.hidden_size)},
            {"intermediate_size", code_of(c.intermediate_size)},
            {"num_hidden_layers", code_of(c.num_hidden_layers)},
            {"num_attention_heads", code_of(c.num_attention_heads)},
            {"max_position_embeddings", code_of(c.max_position_embeddings)},
            {"projection_dim", code_of(c.projection_dim)},
            {"hidden_act", std::string{"::pulse::encode::clip_activation::"} + (gelu ? "gelu" : "quick_gelu")},
            {"layer_norm_eps", code_of(c.layer_norm_eps)},
            {"states_before", code_of(c.states_before)}};
}
/// For BERT and T5, numbers in config.json have the names and the order of the members.
template <class Text>
[[nodiscard]] members members_of(const Text& c) {
    members all{{"name", code_of(c.name)}, {"tokens", code_of(c.tokens)}};
    for (const config_key& key : config_of(c).keys) {
        if (key.value.is_number()) { all.emplace_back(key.name, key.value.dump()); }
    }
    return all;
}

// The templates of networks; the type of their config has the same name and _config.

[[nodiscard]] constexpr const char* template_of(const unet_config&) noexcept { return "unet"; }
[[nodiscard]] constexpr const char* template_of(const hunyuan_dit_config&) noexcept { return "hunyuan_dit"; }
[[nodiscard]] constexpr const char* template_of(const uvit_config&) noexcept { return "uvit"; }
[[nodiscard]] constexpr const char* template_of(const encode::autoencoder_config&) noexcept {
    return "encode::autoencoder";
}
[[nodiscard]] constexpr const char* template_of(const encode::clip_text_config&) noexcept {
    return "encode::clip_text";
}
[[nodiscard]] constexpr const char* template_of(const encode::bert_text_config&) noexcept {
    return "encode::bert_text";
}
[[nodiscard]] constexpr const char* template_of(const encode::t5_text_config&) noexcept { return "encode::t5_text"; }

/// A config as an expression.
template <class Config>
[[nodiscard]] std::string value_of(const Config& c) {
    std::string code = std::string{"::pulse::"} + template_of(c) + "_config{";
    const char* between = "\n    .";
    for (const auto& [member, value] : members_of(c)) {
        code += std::string{std::exchange(between, ",\n    .")} + member + " = " + value;
    }
    return code + "}";
}
/// A network as a type.
template <class Config>
[[nodiscard]] std::string struct_of(const Config& c) {
    return "struct " + c.name.str() + " : ::pulse::" + template_of(c) + "<" + value_of(c) + "> {};\n";
}

[[nodiscard]] inline int classes_of(const uvit_config& c) { return c.num_classes; }
template <class Config>
[[nodiscard]] int classes_of(const Config&) {
    return 0;
}

/// The header of a model with the struct `type`, its template in pulse/nn/`include`.hpp and the input of `backbone`.
[[nodiscard]] inline std::string header_of(const std::string& include, const std::string& type,
                                           const backbone_config& backbone,
                                           const std::optional<network_configs>& networks) {
    std::string code = "#pragma once\n\n#include <pulse/nn/" + include + ".hpp>\n";
    if (networks) { code += "#include <pulse/zoo/frozen_networks.hpp>\n"; }
    code += "\nnamespace pulse_models {\n\n" + type;
    std::string texts;
    if (networks) {
        for (const text_config& text : networks->texts) {
            texts += texts.empty() ? ", text_component<pulse_models::" : ", second_text<pulse_models::";
            std::visit(
                [&](const auto& c) {
                    code += struct_of(c);
                    texts +=
                        c.name.str() + (networks->chunks == 1 ? "" : ", " + std::to_string(networks->chunks)) + ">";
                },
                text);
        }
    }
    code += "\n} // namespace pulse_models\n";
    if (!networks) { return code; }
    const std::string model = "pulse_models::" + std::visit([](const auto& c) { return c.name.str(); }, backbone);
    const int classes = std::visit([](const auto& c) { return classes_of(c); }, backbone);
    const std::string pictures = value_of(networks->pictures);
    // The last class stands for no class.
    code += "\ntemplate <>\nstruct pulse::frozen::networks_of<" + model + ">\n    : ";
    code += !networks->encodes_pictures ? "pixel_networks<" + pictures + texts + "> {};\n"
            : classes == 0              ? "folder_networks<" + pictures + texts + "> {};\n"
                                        : "class_networks<" + pictures + ", " + std::to_string(classes - 1) + "> {};\n";
    return code;
}

} // namespace detail

PULSE_INLINE std::string print_header(const backbone_config& backbone, const std::optional<network_configs>& networks) {
    return std::visit(
        [&](const auto& c) {
            return detail::header_of(detail::template_of(c), detail::struct_of(c), backbone, networks);
        },
        backbone);
}

PULSE_INLINE std::string print_control_header(const backbone_config& backbone,
                                              const std::optional<network_configs>& networks) {
    const auto* const unet = std::get_if<unet_config>(&backbone);
    if (unet == nullptr) { throw input_error("a ControlNet needs a UNet, which this backbone is not"); }
    const std::string name = unet->name.str();
    // The type itself puts this before the name of its UNet.
    constexpr std::string_view prefix = "controlnet_";
    unet_config under = *unet;
    if (name.starts_with(prefix) && name != prefix) { under.name = label{name.substr(prefix.size())}; }
    static_cast<void>(control_config_of(under));
    const std::string type = "struct " + name + " : ::pulse::controlnet<" + detail::value_of(under) + "> {};\n";
    return detail::header_of("controlnet", type, backbone, networks);
}

} // namespace pulse::diffusers
