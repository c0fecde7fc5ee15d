#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/skip.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/dit.hpp>
#include <pulse/nn/dit_block.hpp>
#include <pulse/nn/hunyuan_conditioning.hpp>

namespace pulse {

/// The structure of a Hunyuan-DiT (Li et al. 2024); fields are named as in diffusers' HunyuanDiT2DModel, except
/// mlp_hidden, which is its int(hidden_size * mlp_ratio).
///
/// Of num_layers blocks, the last num_layers / 2 - 1 concatenate the output of their mirror in the first half; the two
/// in the middle have no partner. The head predicts a mean and a variance: twice in_channels.
struct hunyuan_dit_config {
    label name{};
    int sample_size{128};
    int patch_size{2};
    int in_channels{4};
    int hidden_size{1408};
    int num_layers{40};
    int num_attention_heads{16};
    int mlp_hidden{6144};
    int cross_attention_dim{1024};
    int cross_attention_dim_t5{2048};
    int text_len{77};
    int text_len_t5{256};
    bool use_style_cond_and_image_meta_size{};
    /// Positions of the rotary embedding run from 0 to this on both axes: the patches of a 512-pixel image, with which
    /// the model's training began.
    double rotary_span{32.0};

    [[nodiscard]] constexpr int context_tokens() const noexcept { return text_len + text_len_t5; }
};

/// Why a hunyuan_dit_config is invalid.
enum class hunyuan_dit_flaw : std::uint8_t { none, name, sizes, patches, depth, heads };

/// The first flaw of a config; none when it can be built.
[[nodiscard]] constexpr hunyuan_dit_flaw flaw_of(const hunyuan_dit_config& c) noexcept {
    if (c.name.empty()) { return hunyuan_dit_flaw::name; }
    for (const int size : {c.sample_size, c.patch_size, c.in_channels, c.hidden_size, c.num_attention_heads,
                           c.mlp_hidden, c.cross_attention_dim, c.cross_attention_dim_t5, c.text_len, c.text_len_t5}) {
        if (size <= 0) { return hunyuan_dit_flaw::sizes; }
    }
    if (!(c.rotary_span > 0.0)) { return hunyuan_dit_flaw::sizes; }
    if (c.sample_size % c.patch_size != 0) { return hunyuan_dit_flaw::patches; }
    if (c.num_layers < 4 || c.num_layers % 2 != 0) { return hunyuan_dit_flaw::depth; }
    if (c.hidden_size % c.num_attention_heads != 0 || c.hidden_size / c.num_attention_heads % 4 != 0 ||
        c.cross_attention_dim_t5 % nn::hunyuan_time_embedding::pooler_heads != 0) {
        return hunyuan_dit_flaw::heads;
    }
    return hunyuan_dit_flaw::none;
}

// The parts of the backbone that a config asks for.

[[nodiscard]] constexpr nn::patch_embed embed_of(const hunyuan_dit_config& c) noexcept {
    return {c.in_channels, c.sample_size, c.sample_size, c.patch_size, c.hidden_size};
}
[[nodiscard]] constexpr nn::dit_head head_of(const hunyuan_dit_config& c) noexcept {
    return {embed_of(c), 2 * c.in_channels};
}
[[nodiscard]] constexpr nn::dit_block dit_block_of(const hunyuan_dit_config& c, bool skip) noexcept {
    return {embed_of(c).rows(),    embed_of(c).columns(), c.hidden_size,
            c.num_attention_heads, c.mlp_hidden,          c.context_tokens(),
            c.cross_attention_dim, c.rotary_span,         skip};
}
[[nodiscard]] constexpr nn::hunyuan_time_embedding time_embedding_of(const hunyuan_dit_config& c) noexcept {
    return {c.hidden_size, c.text_len_t5, c.cross_attention_dim_t5, c.cross_attention_dim,
            c.use_style_cond_and_image_meta_size};
}
[[nodiscard]] constexpr nn::hunyuan_text_embedding text_embedding_of(const hunyuan_dit_config& c) noexcept {
    return {c.text_len_t5, c.cross_attention_dim_t5, c.cross_attention_dim, c.context_tokens()};
}

[[nodiscard]] constexpr nn::hunyuan_conditioning conditioning_of(const hunyuan_dit_config& c) noexcept {
    return {time_embedding_of(c), text_embedding_of(c)};
}

template <hunyuan_dit_config C>
struct hunyuan_dit_parts {
    static constexpr std::size_t blocks = static_cast<std::size_t>(C.num_layers);
    static constexpr std::size_t skips_count = blocks / 2 - 1;

    [[nodiscard]] static constexpr label block_name(std::size_t i) {
        return label{"blocks."} + static_cast<unsigned>(i);
    }

    /// Names the type of layer I by its return type; never called.
    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_type() {
        if constexpr (I == 0) {
            return std::type_identity<nn::block<"pos_embed", embed_of(C)>>{};
        } else if constexpr (I <= blocks) {
            return std::type_identity<nn::block<block_name(I - 1), dit_block_of(C, I - 1 > blocks / 2)>>{};
        } else {
            return std::type_identity<nn::block<"proj_out", head_of(C)>>{};
        }
    }
    template <std::size_t I>
    using layer_at = typename decltype(layer_type<I>())::type;
    /// Edges in the order in which their targets run.
    template <std::size_t E>
    using skip_at = skip<block_name(skips_count - 1 - E), block_name(blocks / 2 + 1 + E)>;
    using conditioning = nn::conditioning_block<"conditioning", conditioning_of(C)>;

    template <std::size_t... L, std::size_t... E>
    static fitting_model<C.name, layers<layer_at<L>...>, skips<skip_at<E>...>, conditioning> assemble(
        std::index_sequence<L...>, std::index_sequence<E...>);
    using model_type =
        decltype(assemble(std::make_index_sequence<blocks + 2>{}, std::make_index_sequence<skips_count>{}));
};

/// Whether C describes a Hunyuan-DiT; if not, compilation stops with a one-line error.
template <hunyuan_dit_config C>
[[nodiscard]] consteval bool explain_hunyuan_dit() {
    constexpr hunyuan_dit_flaw found = flaw_of(C);
    static_assert(found != hunyuan_dit_flaw::name, "pulse: a hunyuan_dit_config needs a name");
    static_assert(found != hunyuan_dit_flaw::sizes, "pulse: the sizes of a hunyuan_dit must be positive");
    static_assert(found != hunyuan_dit_flaw::patches, "pulse: patch_size of a hunyuan_dit must divide sample_size");
    static_assert(found != hunyuan_dit_flaw::depth, "pulse: num_layers of a hunyuan_dit must be even and at least 4");
    static_assert(
        found != hunyuan_dit_flaw::heads,
        "pulse: num_attention_heads of a hunyuan_dit must divide hidden_size into heads of a multiple of 4 features, "
        "and 8 must divide cross_attention_dim_t5");
    return found == hunyuan_dit_flaw::none;
}

/// The backbone that a hunyuan_dit_config describes, with diffusers' parameter names. An invalid config stops
/// compilation with a one-line error.
template <hunyuan_dit_config C>
    requires(explain_hunyuan_dit<C>())
struct hunyuan_dit : hunyuan_dit_parts<C>::model_type {
    static constexpr hunyuan_dit_config config = C;
};

} // namespace pulse
