#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/unet_config.hpp>

namespace pulse {

enum class unet_part : std::uint8_t {
    conv_in,
    resnet,
    attention,
    downsample,
    upsample,
    conv_out,
    transformer,
};

/// One layer of a UNet as a value, before it becomes a type; `size` is the height and width of its input.
struct unet_layer {
    unet_part part{};
    label name{};
    int in_channels{};
    int skip_channels{};
    int out_channels{};
    int size{};
    int skip_from{-1}; ///< position of the layer whose output is its skip, or -1
    int blocks{};      ///< of a transformer
    int heads{};       ///< of a transformer
};

/// Layers and skip edges {from, to}; the edges are in the order in which their targets run.
template <std::size_t Layers, std::size_t Skips>
struct unet_layout {
    std::array<unet_layer, Layers> layers{};
    std::array<std::array<int, 2>, Skips> skips{};
};

[[nodiscard]] constexpr std::size_t layer_count(const unet_config& c) noexcept {
    int count = 2 + c.mid_block_resnets + (c.mid_block_attention ? 1 : 0); // conv_in, mid_block, conv_out
    count += c.mid_block_transformer_layers != 0 ? 1 : 0;
    for (int level = 0; level != c.levels(); ++level) {
        for (const int up : {0, 1}) {
            for (int j = 0; j != c.layers(level) + up; ++j) {
                count += 1 + (c.attends(level) ? 1 : 0) + (c.transformers(level, up != 0)[j] != 0 ? 1 : 0);
            }
        }
    }
    return static_cast<std::size_t>(count + 2 * (c.levels() - 1));
}
/// One edge for conv_in, for each ResNet block (with its attention or transformer) on the way down, and each
/// downsampler.
[[nodiscard]] constexpr std::size_t skip_count(const unet_config& c) noexcept {
    int count = 0;
    for (int level = 0; level != c.levels(); ++level) { count += c.layers(level) + 1; }
    return static_cast<std::size_t>(count);
}

/// Fills the layers and edges of `to`, which has room for all of the config's. Walks down, through the middle and up as
/// UNet2DModel.forward does: the last skip on the way down is the first to be read on the way up.
template <class Layout>
constexpr void lay_out(const unet_config& c, Layout& to) {
    std::size_t layers = 0;
    std::size_t waiting = 0; // skips that no layer has read yet; they are the next edges

    const auto add = [&](unet_part part, const label& name, int in, int out, int size) -> unet_layer& {
        unet_layer& l = to.layers[layers++];
        l.part = part;
        l.name = name;
        l.in_channels = in;
        l.out_channels = out;
        l.size = size;
        return l;
    };
    const auto leave_skip = [&] { to.skips[to.skips.size() - ++waiting][0] = static_cast<int>(layers) - 1; };
    const auto take_skip = [&](unet_layer& target) {
        auto& edge = to.skips[to.skips.size() - waiting--];
        edge[1] = static_cast<int>(layers) - 1;
        target.skip_from = edge[0];
        target.skip_channels = to.layers[static_cast<std::size_t>(edge[0])].out_channels;
    };
    const auto part_of = [](const char* block, int level, const char* list, int at) {
        return label{block} + static_cast<unsigned>(level) + list + static_cast<unsigned>(at);
    };

    const auto add_transformer = [&](const label& name, int level, int blocks) {
        if (blocks == 0) { return; }
        const int channels = c.channels(level);
        unet_layer& l = add(unet_part::transformer, name, channels, channels, c.size(level));
        l.blocks = blocks;
        l.heads = c.transformer_heads_at(level);
    };

    const int levels = c.levels();
    int channels = c.channels(0);
    add(unet_part::conv_in, "conv_in", c.in_channels, channels, c.sample_size);
    leave_skip();
    for (int level = 0; level != levels; ++level) {
        const int size = c.size(level);
        for (int j = 0; j != c.layers(level); ++j) {
            add(unet_part::resnet, part_of("down_blocks.", level, ".resnets.", j), channels, c.channels(level), size);
            channels = c.channels(level);
            if (c.attends(level)) {
                add(unet_part::attention, part_of("down_blocks.", level, ".attentions.", j), channels, channels, size);
            }
            add_transformer(part_of("down_blocks.", level, ".attentions.", j), level, c.transformers(level, false)[j]);
            leave_skip();
        }
        if (level != levels - 1) {
            add(unet_part::downsample, part_of("down_blocks.", level, ".downsamplers.", 0), channels, channels, size);
            leave_skip();
        }
    }

    const int bottom = c.size(levels - 1);
    if (c.mid_block_resnets != 0) { add(unet_part::resnet, "mid_block.resnets.0", channels, channels, bottom); }
    if (c.mid_block_attention) { add(unet_part::attention, "mid_block.attentions.0", channels, channels, bottom); }
    add_transformer("mid_block.attentions.0", levels - 1, c.mid_block_transformer_layers);
    if (c.mid_block_resnets == 2) { add(unet_part::resnet, "mid_block.resnets.1", channels, channels, bottom); }

    for (int i = 0; i != levels; ++i) {
        const int level = levels - 1 - i;
        const int size = c.size(level);
        for (int j = 0; j != c.layers(level) + 1; ++j) {
            const label name = part_of("up_blocks.", i, ".resnets.", j);
            take_skip(add(unet_part::resnet, name, channels, c.channels(level), size));
            channels = c.channels(level);
            if (c.attends(level)) {
                add(unet_part::attention, part_of("up_blocks.", i, ".attentions.", j), channels, channels, size);
            }
            add_transformer(part_of("up_blocks.", i, ".attentions.", j), level, c.transformers(level, true)[j]);
        }
        if (level != 0) {
            add(unet_part::upsample, part_of("up_blocks.", i, ".upsamplers.", 0), channels, channels, size);
        }
    }
    add(unet_part::conv_out, "conv_out", channels, c.out_channels, c.sample_size);
}

template <unet_config C>
[[nodiscard]] constexpr auto layout_of() {
    unet_layout<layer_count(C), skip_count(C)> layout{};
    lay_out(C, layout);
    return layout;
}

} // namespace pulse
