#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/skip.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>
#include <pulse/nn/spatial_transformer.hpp>
#include <pulse/nn/text_block.hpp>
#include <pulse/nn/text_conditioning.hpp>
#include <pulse/nn/time_embedding.hpp>
#include <pulse/nn/unet_config.hpp>
#include <pulse/nn/unet_layout.hpp>

namespace pulse {

/// Selects the overload of math_of for a part.
template <unet_part Part>
using unet_part_is = std::integral_constant<unet_part, Part>;

// Plain functions build the mathematics of each layer: in a template, nvcc 13 misreads a designated initialiser that
// leaves members out.

[[nodiscard]] constexpr nn::conv math_of(unet_part_is<unet_part::conv_in>, const unet_config&,
                                         const unet_layer& l) noexcept {
    return {.in_channels = l.in_channels, .out_channels = l.out_channels, .height = l.size, .width = l.size};
}
[[nodiscard]] constexpr nn::resnet math_of(unet_part_is<unet_part::resnet>, const unet_config& c,
                                           const unet_layer& l) noexcept {
    return {.in_channels = l.in_channels,
            .skip_channels = l.skip_channels,
            .out_channels = l.out_channels,
            .height = l.size,
            .width = l.size,
            .groups = c.norm_num_groups,
            .conditioning = c.conditioning(),
            .epsilon = c.norm_eps};
}
[[nodiscard]] constexpr nn::attention math_of(unet_part_is<unet_part::attention>, const unet_config& c,
                                              const unet_layer& l) noexcept {
    return {.channels = l.in_channels,
            .height = l.size,
            .width = l.size,
            .groups = c.norm_num_groups,
            .heads = c.heads(l.in_channels),
            .epsilon = c.norm_eps};
}
[[nodiscard]] constexpr nn::downsample math_of(unet_part_is<unet_part::downsample>, const unet_config& c,
                                               const unet_layer& l) noexcept {
    return {.channels = l.in_channels, .height = l.size, .width = l.size, .padding = c.downsample_padding};
}
[[nodiscard]] constexpr nn::upsample math_of(unet_part_is<unet_part::upsample>, const unet_config&,
                                             const unet_layer& l) noexcept {
    return {.channels = l.in_channels, .height = l.size, .width = l.size};
}
[[nodiscard]] constexpr nn::norm_conv math_of(unet_part_is<unet_part::conv_out>, const unet_config& c,
                                              const unet_layer& l) noexcept {
    return {.in_channels = l.in_channels,
            .out_channels = l.out_channels,
            .height = l.size,
            .width = l.size,
            .groups = c.norm_num_groups,
            .epsilon = c.norm_eps};
}
[[nodiscard]] constexpr nn::time_embedding time_embedding_of(const unet_config& c) noexcept {
    return {.features = c.channels(0),
            .width = c.conditioning(),
            .flip_sin_to_cos = c.flip_sin_to_cos,
            .freq_shift = c.freq_shift};
}
[[nodiscard]] constexpr nn::text_attention text_attention_of(const unet_config& c, const unet_layer& l) noexcept {
    return {.channels = l.in_channels,
            .height = l.size,
            .width = l.size,
            .heads = l.heads,
            .context_tokens = c.context_tokens,
            .context_features = c.cross_attention_dim,
            .groups = c.norm_num_groups};
}
[[nodiscard]] constexpr nn::spatial_transformer math_of(unet_part_is<unet_part::transformer>, const unet_config& c,
                                                        const unet_layer& l) noexcept {
    return {text_attention_of(c, l), l.blocks, c.use_linear_projection};
}
[[nodiscard]] constexpr nn::text_conditioning text_conditioning_of(const unet_config& c) noexcept {
    return {.time = time_embedding_of(c),
            .context_tokens = c.context_tokens,
            .context_features = c.cross_attention_dim,
            .given_features = c.encoder_hid_dim,
            .pooled = c.pooled(),
            .size_features = c.adds_embedding() ? c.addition_time_embed_dim : 0};
}

/// Calls use(math) with the mathematics of a layer.
template <class Use>
constexpr void use_math(const unet_config& c, const unet_layer& l, const Use& use) {
    switch (l.part) {
    case unet_part::conv_in: return use(math_of(unet_part_is<unet_part::conv_in>{}, c, l));
    case unet_part::resnet: return use(math_of(unet_part_is<unet_part::resnet>{}, c, l));
    case unet_part::attention: return use(math_of(unet_part_is<unet_part::attention>{}, c, l));
    case unet_part::downsample: return use(math_of(unet_part_is<unet_part::downsample>{}, c, l));
    case unet_part::upsample: return use(math_of(unet_part_is<unet_part::upsample>{}, c, l));
    case unet_part::transformer: return use(math_of(unet_part_is<unet_part::transformer>{}, c, l));
    case unet_part::conv_out: return use(math_of(unet_part_is<unet_part::conv_out>{}, c, l));
    }
}

/// The conditioning module of a UNet: the time embedding; with text also the text states, given or projected, and the
/// embedding that is added to the time embedding.
template <unet_config C>
struct unet_conditioning {
    using type = nn::conditioning_block<"time_embedding", time_embedding_of(C)>;
};
template <unet_config C>
    requires(C.reads_text())
struct unet_conditioning<C> {
    using type = nn::conditioning_block<"conditioning", text_conditioning_of(C)>;
};

template <unet_config C>
struct unet_parts {
    static constexpr auto layout = layout_of<C>();

    [[nodiscard]] static constexpr unet_layer layer(std::size_t i) noexcept { return layout.layers[i]; }
    [[nodiscard]] static constexpr label skip_end(std::size_t edge, std::size_t end) noexcept {
        return layer(static_cast<std::size_t>(layout.skips[edge][end])).name;
    }

    template <std::size_t I>
    using layer_at = nn::block<layer(I).name, math_of(unet_part_is<layer(I).part>{}, C, layer(I))>;
    template <std::size_t E>
    using skip_at = skip<skip_end(E, 0), skip_end(E, 1)>;
    using conditioning = typename unet_conditioning<C>::type;

    template <std::size_t... L, std::size_t... E>
    static fitting_model<C.name, layers<layer_at<L>...>, skips<skip_at<E>...>, conditioning> assemble(
        std::index_sequence<L...>, std::index_sequence<E...>);

    using model_type = decltype(assemble(std::make_index_sequence<layout.layers.size()>{},
                                         std::make_index_sequence<layout.skips.size()>{}));
};

/// Whether C describes a UNet; if not, compilation stops with a one-line error.
template <unet_config C>
[[nodiscard]] consteval bool explain_unet() {
    constexpr unet_flaw found = flaw_of(C);
    static_assert(found != unet_flaw::name, "pulse: a unet_config needs a name");
    static_assert(found != unet_flaw::levels,
                  "pulse: block_out_channels of a unet must have 1 to 8 positive numbers, then only zeros");
    static_assert(found != unet_flaw::attention, "pulse: attention of a unet must only be set for levels that exist");
    static_assert(found != unet_flaw::sizes, "pulse: the sizes and channels of a unet must be positive");
    static_assert(
        found != unet_flaw::middle,
        "pulse: mid_block_resnets of a unet must be from 0 to 2, and 2 with a mid-block attention or transformer");
    static_assert(found != unet_flaw::halving,
                  "pulse: sample_size of a unet must be divisible by 2 for every level below the first");
    static_assert(found != unet_flaw::groups, "pulse: norm_num_groups must divide every number of block_out_channels");
    static_assert(found != unet_flaw::heads,
                  "pulse: attention_head_dim must divide the channels of every level that attends");
    static_assert(found != unet_flaw::padding, "pulse: downsample_padding of a unet must be 0 or 1");
    static_assert(found != unet_flaw::sinusoid,
                  "pulse: the first number of block_out_channels must be even and more than twice freq_shift");
    static_assert(found != unet_flaw::transformers,
                  "pulse: transformers of a unet must only be set for levels that exist without attention blocks, for "
                  "all ResNet blocks of a level or none, and a list must have one number for each, down and up");
    static_assert(
        found != unet_flaw::text,
        "pulse: a unet must have cross_attention_dim if and only if it has transformers; without them it must "
        "have no encoder_hid_dim and add nothing to the time embedding");
    return found == unet_flaw::none;
}

/// The backbone that a unet_config describes, in diffusers' UNet2DModel or
/// UNet2DConditionModel layout: layers, parameter names and skip edges.
///
/// A user derives a named struct: `struct mine : pulse::unet<pulse::unet_config{.name = "mine", ...}> {};`. An invalid
/// config stops compilation with a one-line error.
template <unet_config C>
    requires(explain_unet<C>())
struct unet : unet_parts<C>::model_type {
    static constexpr unet_config config = C;
};

} // namespace pulse
