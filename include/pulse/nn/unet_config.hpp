#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/one_or_each.hpp>

namespace pulse {

/// The structure of a diffusers UNet2DModel or UNet2DConditionModel; fields of their config.json keep their names.
///
/// Level i has block_out_channels[i] channels and half the pixels of level i - 1; zeros end the list. `attention[i]`
/// puts an attention block after every ResNet block of level i, down and up. Heads are channels / attention_head_dim;
/// attention_head_dim 0 is diffusers' null: one head.
///
/// `transformer_layers_per_block[i]` instead puts a transformer of that many blocks there, which also attends to
/// context_tokens text states of cross_attention_dim features. A list gives one number per ResNet block of the level on
/// the way down; reverse_transformer_layers_per_block then gives those on the way up, starting at the last level. There
/// are transformer_heads heads or, if that is 0, channels / transformer_head_dim. The middle has two ResNet blocks
/// around its attention or transformer, or mid_block_resnets (0 or 1) of them and neither.
struct unet_config {
    label name{};
    int sample_size{};
    int in_channels{3};
    int out_channels{3};
    std::array<int, 8> block_out_channels{};
    one_or_each<int> layers_per_block = 2;
    std::array<bool, 8> attention{};
    int mid_block_resnets{2};
    bool mid_block_attention{true};
    int attention_head_dim{8};
    int norm_num_groups{32};
    double norm_eps{1e-5};
    int downsample_padding{1};
    bool flip_sin_to_cos{true};
    int freq_shift{};
    one_or_each<one_or_each<int>> transformer_layers_per_block{};
    one_or_each<one_or_each<int>> reverse_transformer_layers_per_block{};
    int mid_block_transformer_layers{};
    int cross_attention_dim{};
    /// Features of the given text states if a linear layer projects them to cross_attention_dim; 0: no projection.
    int encoder_hid_dim{};
    int context_tokens{77};
    one_or_each<int> transformer_heads{};
    int transformer_head_dim{64};
    bool use_linear_projection{true};
    /// Input features of a second embedding that is added to the time embedding (SDXL: pooled text and sizes); 0: none.
    int projection_class_embeddings_input_dim{};
    int addition_time_embed_dim{256}; ///< features of each of the six sizes in it; the rest is the pooled text

    [[nodiscard]] constexpr int levels() const noexcept {
        int count = 0;
        while (count != 8 && block_out_channels[static_cast<std::size_t>(count)] != 0) { ++count; }
        return count;
    }
    [[nodiscard]] constexpr int channels(int level) const noexcept {
        return block_out_channels[static_cast<std::size_t>(level)];
    }
    [[nodiscard]] constexpr bool attends(int level) const noexcept {
        return attention[static_cast<std::size_t>(level)];
    }
    /// ResNet blocks of a level on the way down; there is one more on the way up.
    [[nodiscard]] constexpr int layers(int level) const noexcept { return layers_per_block[level]; }
    /// Transformer blocks after each ResNet block of a level, on the way down or up.
    [[nodiscard]] constexpr one_or_each<int> transformers(int level, bool up) const noexcept {
        return up && reverse_transformer_layers_per_block.is_list()
                   ? reverse_transformer_layers_per_block[levels() - 1 - level]
                   : transformer_layers_per_block[level];
    }
    [[nodiscard]] constexpr bool has_transformers(int level) const noexcept {
        return transformers(level, false)[0] != 0;
    }
    [[nodiscard]] constexpr bool reads_text() const noexcept { return cross_attention_dim != 0; }
    /// Features of the text states as given.
    [[nodiscard]] constexpr int text_features() const noexcept {
        return encoder_hid_dim != 0 ? encoder_hid_dim : cross_attention_dim;
    }
    [[nodiscard]] constexpr int transformer_heads_at(int level) const noexcept {
        return transformer_heads[level] != 0 ? transformer_heads[level] : channels(level) / transformer_head_dim;
    }
    [[nodiscard]] constexpr int size(int level) const noexcept { return sample_size >> level; }
    [[nodiscard]] constexpr int heads(int channels) const noexcept {
        return attention_head_dim == 0 ? 1 : channels / attention_head_dim;
    }
    [[nodiscard]] constexpr int conditioning() const noexcept { return 4 * channels(0); }
    [[nodiscard]] constexpr bool adds_embedding() const noexcept { return projection_class_embeddings_input_dim != 0; }
    /// Features of the pooled text.
    [[nodiscard]] constexpr int pooled() const noexcept {
        return adds_embedding() ? projection_class_embeddings_input_dim - 6 * addition_time_embed_dim : 0;
    }
};

/// Why a unet_config is invalid.
enum class unet_flaw : std::uint8_t {
    none,
    name,
    levels,
    attention,
    sizes,
    middle,
    halving,
    groups,
    heads,
    padding,
    sinusoid,
    transformers,
    text,
};

/// The first flaw of a config's transformers, which must fit their levels and each other; none if they do.
[[nodiscard]] constexpr unet_flaw transformer_flaw_of(const unet_config& c) noexcept {
    if (c.mid_block_transformer_layers < 0 || c.cross_attention_dim < 0 || c.encoder_hid_dim < 0 ||
        c.context_tokens <= 0 || c.transformer_head_dim <= 0 || c.projection_class_embeddings_input_dim < 0) {
        return unet_flaw::sizes;
    }
    const int levels = c.levels();
    bool any = c.mid_block_transformer_layers != 0;
    if ((any && c.mid_block_attention) || c.transformer_layers_per_block.count > levels ||
        !c.reverse_transformer_layers_per_block.fits(levels)) {
        return unet_flaw::transformers;
    }
    if (c.transformer_heads.count > levels) { return unet_flaw::heads; }
    for (int level = 0; level != levels; ++level) {
        const bool blocks = c.has_transformers(level);
        if (blocks && c.attends(level)) { return unet_flaw::transformers; }
        for (const bool up : {false, true}) {
            const one_or_each<int> here = c.transformers(level, up);
            const int positions = c.layers(level) + (up ? 1 : 0);
            if (!here.fits(positions)) { return unet_flaw::transformers; }
            for (int j = 0; j != positions; ++j) {
                if (here[j] < 0 || (here[j] != 0) != blocks) { return unet_flaw::transformers; }
            }
        }
        const bool here = blocks || (level == levels - 1 && c.mid_block_transformer_layers != 0);
        if (here) {
            const int heads = c.transformer_heads_at(level);
            if (heads <= 0 || c.channels(level) % heads != 0) { return unet_flaw::heads; }
        }
        any = any || here;
    }
    if (any != c.reads_text()) { return unet_flaw::text; }
    // A UNet without text is UNet2DModel, which has no second embedding; the parts of no transformer cannot be layers.
    if (!any && (c.projection_class_embeddings_input_dim != 0 || c.encoder_hid_dim != 0)) { return unet_flaw::text; }
    const bool waves = c.addition_time_embed_dim % 2 == 0 && c.addition_time_embed_dim / 2 > c.freq_shift;
    if (c.adds_embedding() && (!waves || c.pooled() <= 0)) { return unet_flaw::sizes; }
    return unet_flaw::none;
}

[[nodiscard]] constexpr unet_flaw flaw_of(const unet_config& c) noexcept {
    if (c.name.empty()) { return unet_flaw::name; }
    const int levels = c.levels();
    if (levels == 0) { return unet_flaw::levels; }
    for (int level = levels; level != 8; ++level) {
        if (c.channels(level) != 0) { return unet_flaw::levels; }
    }
    for (int level = levels; level != 8; ++level) {
        if (c.attends(level)) { return unet_flaw::attention; }
    }
    if (c.sample_size <= 0 || c.in_channels <= 0 || c.out_channels <= 0 || c.layers_per_block.count > levels ||
        c.norm_num_groups <= 0 || c.attention_head_dim < 0) {
        return unet_flaw::sizes;
    }
    if (c.mid_block_resnets < 0 || c.mid_block_resnets > 2 ||
        (c.mid_block_resnets != 2 && (c.mid_block_attention || c.mid_block_transformer_layers != 0))) {
        return unet_flaw::middle;
    }
    if (c.sample_size % (1 << (levels - 1)) != 0) { return unet_flaw::halving; }
    if (c.downsample_padding != 0 && c.downsample_padding != 1) { return unet_flaw::padding; }
    for (int level = 0; level != levels; ++level) {
        const int channels = c.channels(level);
        if (channels < 0 || c.layers(level) <= 0) { return unet_flaw::sizes; }
        if (channels % c.norm_num_groups != 0) { return unet_flaw::groups; }
        const bool attends = c.attends(level) || (level == levels - 1 && c.mid_block_attention);
        if (attends && c.attention_head_dim != 0 && channels % c.attention_head_dim != 0) { return unet_flaw::heads; }
    }
    if (c.channels(0) % 2 != 0 || c.freq_shift < 0 || c.channels(0) / 2 <= c.freq_shift) { return unet_flaw::sinusoid; }
    return transformer_flaw_of(c);
}

} // namespace pulse
