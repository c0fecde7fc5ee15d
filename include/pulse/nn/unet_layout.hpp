#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pulse/core/label.hpp>

namespace pulse {

/// The structure of a diffusers UNet2DModel; the names of the fields and their defaults are those of its config.json.
///
/// Level i has block_out_channels[i] channels and half the pixels of level i - 1; zeros end the list. `attention[i]`
/// puts an attention block behind every ResNet block of level i, down and up. Heads are channels / attention_head_dim;
/// attention_head_dim 0 is diffusers' null: one head.
struct unet_config {
    label name{};
    int sample_size{};
    int in_channels{3};
    int out_channels{3};
    std::array<int, 8> block_out_channels{};
    int layers_per_block{2};
    std::array<bool, 8> attention{};
    bool mid_block_attention{true};
    int attention_head_dim{8};
    int norm_num_groups{32};
    double norm_eps{1e-5};
    int downsample_padding{1};
    bool flip_sin_to_cos{true};
    int freq_shift{};

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
    [[nodiscard]] constexpr int size(int level) const noexcept { return sample_size >> level; }
    [[nodiscard]] constexpr int heads(int channels) const noexcept {
        return attention_head_dim == 0 ? 1 : channels / attention_head_dim;
    }
    [[nodiscard]] constexpr int conditioning() const noexcept { return 4 * channels(0); }
};

/// What makes a unet_config unusable.
enum class unet_flaw : std::uint8_t { none, name, levels, attention, sizes, halving, groups, heads, padding, sinusoid };

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
    if (c.sample_size <= 0 || c.in_channels <= 0 || c.out_channels <= 0 || c.layers_per_block <= 0 ||
        c.norm_num_groups <= 0 || c.attention_head_dim < 0) {
        return unet_flaw::sizes;
    }
    if (c.sample_size % (1 << (levels - 1)) != 0) { return unet_flaw::halving; }
    if (c.downsample_padding != 0 && c.downsample_padding != 1) { return unet_flaw::padding; }
    for (int level = 0; level != levels; ++level) {
        const int channels = c.channels(level);
        if (channels < 0) { return unet_flaw::sizes; }
        if (channels % c.norm_num_groups != 0) { return unet_flaw::groups; }
        const bool attends = c.attends(level) || (level == levels - 1 && c.mid_block_attention);
        if (attends && c.attention_head_dim != 0 && channels % c.attention_head_dim != 0) { return unet_flaw::heads; }
    }
    if (c.channels(0) % 2 != 0 || c.freq_shift < 0 || c.channels(0) / 2 <= c.freq_shift) { return unet_flaw::sinusoid; }
    return unet_flaw::none;
}

enum class unet_part : std::uint8_t { conv_in, resnet, attention, downsample, upsample, conv_out };

/// One layer of a UNet before it is a type; `size` is the height and width of its input.
struct unet_layer {
    unet_part part{};
    label name{};
    int in_channels{};
    int skip_channels{};
    int out_channels{};
    int size{};
    int skip_from{-1}; ///< position of the layer whose output comes in, or -1
};

template <std::size_t Layers, std::size_t Skips>
struct unet_layout {
    std::array<unet_layer, Layers> layers{};
    std::array<std::array<int, 2>, Skips> skips{}; ///< from, to; in the order in which their targets run
};

[[nodiscard]] constexpr std::size_t layer_count(const unet_config& c) noexcept {
    int count = c.mid_block_attention ? 5 : 4; // conv_in, mid_block, conv_out
    for (int level = 0; level != c.levels(); ++level) {
        count += (c.attends(level) ? 2 : 1) * (2 * c.layers_per_block + 1);
    }
    return static_cast<std::size_t>(count + 2 * (c.levels() - 1));
}
/// One edge per layer that ends a step of the way down: conv_in, every ResNet or attention block, every downsampler.
[[nodiscard]] constexpr std::size_t skip_count(const unet_config& c) noexcept {
    return static_cast<std::size_t>(c.levels() * (c.layers_per_block + 1));
}

/// Walks down, through the middle and up as UNet2DModel.forward does, with the list of waiting skips as a stack.
template <unet_config C>
[[nodiscard]] constexpr auto layout_of() {
    unet_layout<layer_count(C), skip_count(C)> layout{};
    std::array<int, skip_count(C)> waiting{};
    std::size_t layers = 0;
    std::size_t depth = 0;
    std::size_t skips = 0;

    const auto add = [&](unet_part part, const label& name, int in, int out, int size) -> unet_layer& {
        unet_layer& l = layout.layers[layers++];
        l.part = part;
        l.name = name;
        l.in_channels = in;
        l.out_channels = out;
        l.size = size;
        return l;
    };
    const auto leave_skip = [&] { waiting[depth++] = static_cast<int>(layers) - 1; };
    const auto take_skip = [&](unet_layer& target) {
        target.skip_from = waiting[--depth];
        target.skip_channels = layout.layers[static_cast<std::size_t>(target.skip_from)].out_channels;
        layout.skips[skips++] = {target.skip_from, static_cast<int>(layers) - 1};
    };
    const auto part_of = [](const char* block, int level, const char* list, int at) {
        return label{block} + static_cast<unsigned>(level) + list + static_cast<unsigned>(at);
    };

    const int levels = C.levels();
    int channels = C.channels(0);
    add(unet_part::conv_in, "conv_in", C.in_channels, channels, C.sample_size);
    leave_skip();
    for (int level = 0; level != levels; ++level) {
        const int size = C.size(level);
        for (int j = 0; j != C.layers_per_block; ++j) {
            add(unet_part::resnet, part_of("down_blocks.", level, ".resnets.", j), channels, C.channels(level), size);
            channels = C.channels(level);
            if (C.attends(level)) {
                add(unet_part::attention, part_of("down_blocks.", level, ".attentions.", j), channels, channels, size);
            }
            leave_skip();
        }
        if (level != levels - 1) {
            add(unet_part::downsample, part_of("down_blocks.", level, ".downsamplers.", 0), channels, channels, size);
            leave_skip();
        }
    }

    const int bottom = C.size(levels - 1);
    add(unet_part::resnet, "mid_block.resnets.0", channels, channels, bottom);
    if (C.mid_block_attention) { add(unet_part::attention, "mid_block.attentions.0", channels, channels, bottom); }
    add(unet_part::resnet, "mid_block.resnets.1", channels, channels, bottom);

    for (int i = 0; i != levels; ++i) {
        const int level = levels - 1 - i;
        const int size = C.size(level);
        for (int j = 0; j != C.layers_per_block + 1; ++j) {
            const label name = part_of("up_blocks.", i, ".resnets.", j);
            take_skip(add(unet_part::resnet, name, channels, C.channels(level), size));
            channels = C.channels(level);
            if (C.attends(level)) {
                add(unet_part::attention, part_of("up_blocks.", i, ".attentions.", j), channels, channels, size);
            }
        }
        if (level != 0) {
            add(unet_part::upsample, part_of("up_blocks.", i, ".upsamplers.", 0), channels, channels, size);
        }
    }
    add(unet_part::conv_out, "conv_out", channels, C.out_channels, C.sample_size);
    return layout;
}

} // namespace pulse
