#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/encode/autoencoder_config.hpp>
#include <pulse/encode/strips.hpp>
#include <pulse/model/model.hpp>
#include <pulse/nn/attention.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/norm.hpp>
#include <pulse/nn/resnet.hpp>

namespace pulse::encode {

enum class autoencoder_half : std::uint8_t { encoder, decoder };
enum class autoencoder_part : std::uint8_t { conv, product, resnet, attention, downsample, upsample, conv_out };

/// What the type of one layer of an autoencoder is made from; `size` is the height and width of its input.
struct autoencoder_layer {
    autoencoder_part part{};
    label name{};
    int in_channels{};
    int out_channels{};
    int size{};
};

[[nodiscard]] constexpr std::size_t layer_count(const autoencoder_config& c, autoencoder_half half) noexcept {
    const int resnets = c.levels() * (c.layers_per_block + (half == autoencoder_half::decoder ? 1 : 0));
    return static_cast<std::size_t>(resnets + c.levels() - 1 + 6); // samplers; 2 ends, 3 in the middle, 1 product
}

/// Layers in the order of AutoencoderKL.encode or decode; the encoder returns moments, the decoder reads latents.
template <autoencoder_config C, autoencoder_half Half>
[[nodiscard]] constexpr auto layout_of() {
    using part = autoencoder_part;
    constexpr bool encodes = Half == autoencoder_half::encoder;
    const label root{encodes ? "encoder" : "decoder"};
    const int last = C.levels() - 1;
    std::array<autoencoder_layer, layer_count(C, Half)> layers{};
    std::size_t count = 0;
    int channels = encodes ? C.in_channels : C.latent_channels;
    int size = encodes ? C.sample_size : C.size(last);

    const auto add = [&](part kind, const label& name, int out) {
        layers[count++] = {kind, name, channels, out, size};
        channels = out;
        if (kind == part::downsample) { size /= 2; }
        if (kind == part::upsample) { size *= 2; }
    };
    const auto add_level = [&](const char* blocks, int at, int out, int resnets, part between, const char* name) {
        const label block = root + blocks + static_cast<unsigned>(at);
        for (int j = 0; j != resnets; ++j) { add(part::resnet, block + ".resnets." + static_cast<unsigned>(j), out); }
        if (at != last) { add(between, block + name, out); }
    };
    const auto add_middle = [&] {
        add(part::resnet, root + ".mid_block.resnets.0", channels);
        add(part::attention, root + ".mid_block.attentions.0", channels);
        add(part::resnet, root + ".mid_block.resnets.1", channels);
    };

    if constexpr (encodes) {
        add(part::conv, root + ".conv_in", C.channels(0));
        for (int i = 0; i <= last; ++i) {
            add_level(".down_blocks.", i, C.channels(i), C.layers_per_block, part::downsample, ".downsamplers.0");
        }
        add_middle();
        add(part::conv_out, root + ".conv_out", C.moments());
        add(part::product, "quant_conv", C.moments());
    } else {
        add(part::product, "post_quant_conv", C.latent_channels);
        add(part::conv, root + ".conv_in", C.channels(last));
        add_middle();
        for (int i = 0; i <= last; ++i) {
            add_level(".up_blocks.", i, C.channels(last - i), C.layers_per_block + 1, part::upsample, ".upsamplers.0");
        }
        add(part::conv_out, root + ".conv_out", C.out_channels);
    }
    return layers;
}

/// Selects the overload of math_of for a part.
template <autoencoder_part Part>
using autoencoder_part_is = std::integral_constant<autoencoder_part, Part>;

// Plain functions return the numbers of each layer: in a template, nvcc 13 misreads a designated initialiser that
// leaves members out.

/// Epsilon of AutoencoderKL's norms.
inline constexpr double autoencoder_epsilon = 1e-6;

[[nodiscard]] constexpr nn::conv math_of(autoencoder_part_is<autoencoder_part::conv>, const autoencoder_config&,
                                         const autoencoder_layer& l) noexcept {
    return {.in_channels = l.in_channels, .out_channels = l.out_channels, .height = l.size, .width = l.size};
}
[[nodiscard]] constexpr nn::conv math_of(autoencoder_part_is<autoencoder_part::product>, const autoencoder_config&,
                                         const autoencoder_layer& l) noexcept {
    return {.in_channels = l.in_channels,
            .out_channels = l.out_channels,
            .height = l.size,
            .width = l.size,
            .kernel = 1,
            .pad_before = 0,
            .pad_after = 0};
}
[[nodiscard]] constexpr strip_resnet math_of(autoencoder_part_is<autoencoder_part::resnet>, const autoencoder_config& c,
                                             const autoencoder_layer& l) noexcept {
    return {{.in_channels = l.in_channels,
             .out_channels = l.out_channels,
             .height = l.size,
             .width = l.size,
             .groups = c.norm_num_groups,
             .epsilon = autoencoder_epsilon},
            c.strip_rows};
}
[[nodiscard]] constexpr nn::attention math_of(autoencoder_part_is<autoencoder_part::attention>,
                                              const autoencoder_config& c, const autoencoder_layer& l) noexcept {
    return {.channels = l.in_channels,
            .height = l.size,
            .width = l.size,
            .groups = c.norm_num_groups,
            .heads = 1,
            .epsilon = autoencoder_epsilon};
}
[[nodiscard]] constexpr nn::downsample math_of(autoencoder_part_is<autoencoder_part::downsample>,
                                               const autoencoder_config&, const autoencoder_layer& l) noexcept {
    return {.channels = l.in_channels, .height = l.size, .width = l.size, .padding = 0};
}
[[nodiscard]] constexpr strip_upsample math_of(autoencoder_part_is<autoencoder_part::upsample>,
                                               const autoencoder_config& c, const autoencoder_layer& l) noexcept {
    return {{.channels = l.in_channels, .height = l.size, .width = l.size}, c.strip_rows};
}
[[nodiscard]] constexpr strip_norm_conv math_of(autoencoder_part_is<autoencoder_part::conv_out>,
                                                const autoencoder_config& c, const autoencoder_layer& l) noexcept {
    return {{.in_channels = l.in_channels,
             .out_channels = l.out_channels,
             .height = l.size,
             .width = l.size,
             .groups = c.norm_num_groups,
             .epsilon = autoencoder_epsilon},
            c.strip_rows};
}

template <autoencoder_config C, autoencoder_half Half>
struct autoencoder_parts {
    static constexpr auto layout = layout_of<C, Half>();

    template <std::size_t I>
    using layer_at = nn::block<layout[I].name, math_of(autoencoder_part_is<layout[I].part>{}, C, layout[I])>;
    template <std::size_t... I>
    static fitting_model<C.name, layers<layer_at<I>...>> assemble(std::index_sequence<I...>);

    using model_type = decltype(assemble(std::make_index_sequence<layout.size()>{}));
};

/// Whether C describes an autoencoder; if not, compilation stops with one sentence.
template <autoencoder_config C>
[[nodiscard]] consteval bool explain_autoencoder() {
    constexpr autoencoder_flaw found = flaw_of(C);
    static_assert(found != autoencoder_flaw::name, "pulse: an autoencoder_config needs a name");
    static_assert(found != autoencoder_flaw::levels,
                  "pulse: block_out_channels of an autoencoder must have 1 to 8 positive numbers, then only zeros");
    static_assert(found != autoencoder_flaw::sizes, "pulse: the sizes and channels of an autoencoder must be positive");
    static_assert(found != autoencoder_flaw::halving,
                  "pulse: sample_size of an autoencoder must be divisible by 2 for every level below the first");
    static_assert(found != autoencoder_flaw::groups,
                  "pulse: norm_num_groups must divide every number of block_out_channels");
    return found == autoencoder_flaw::none;
}

/// Turns pictures [size][size][in_channels], from -1 to 1, into moments [latent size][latent size][means, logarithms of
/// variances] of their latents, which picture_backend's posterior draws. Forward-only; run it with `chain`.
template <autoencoder_config C>
    requires(explain_autoencoder<C>())
struct autoencoder_encoder : autoencoder_parts<C, autoencoder_half::encoder>::model_type {
    static constexpr autoencoder_config config = C;
};

/// Turns latents [latent size][latent size][latent_channels], divided by scaling_factor, into pictures [size][size]
/// [out_channels], about -1 to 1 (the weights decide). Forward-only, like autoencoder_encoder.
template <autoencoder_config C>
    requires(explain_autoencoder<C>())
struct autoencoder_decoder : autoencoder_parts<C, autoencoder_half::decoder>::model_type {
    static constexpr autoencoder_config config = C;
};

/// A parameter's name in files from before diffusers 0.18; only the attention's products have another one.
[[nodiscard]] inline std::string older_name(std::string_view name) {
    std::string older{name};
    for (const auto& [now, before] : {std::pair<std::string_view, std::string_view>{".to_q.", ".query."},
                                      {".to_k.", ".key."},
                                      {".to_v.", ".value."},
                                      {".to_out.0.", ".proj_attn."}}) {
        if (const auto at = older.find(now); at != std::string::npos) { return older.replace(at, now.size(), before); }
    }
    return older;
}

} // namespace pulse::encode
