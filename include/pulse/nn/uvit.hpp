#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <pulse/core/label.hpp>
#include <pulse/model/model.hpp>
#include <pulse/model/skip.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/vit.hpp>
#include <pulse/nn/vit_block.hpp>

namespace pulse {

/// The structure of a U-ViT (Bao et al. 2023); fields are named as the arguments of baofff/U-ViT's UViT, whose other
/// arguments have their defaults, and num_classes is 0 for its -1.
///
/// depth / 2 blocks, a middle one and depth / 2 blocks that each concatenate the output of their mirror. Time and class
/// are tokens of the first layer, so the model relays no conditioning.
struct uvit_config {
    label name{};
    int img_size{};
    int patch_size{};
    int in_chans{};
    int embed_dim{};
    int depth{};
    int num_heads{};
    int num_classes{};
    bool conv{true};
};

/// Why a uvit_config is invalid.
enum class uvit_flaw : std::uint8_t { none, name, sizes, patches, depth, heads };

[[nodiscard]] constexpr uvit_flaw flaw_of(const uvit_config& c) noexcept {
    if (c.name.empty()) { return uvit_flaw::name; }
    if (c.img_size <= 0 || c.patch_size <= 0 || c.in_chans <= 0 || c.embed_dim <= 0 || c.num_heads <= 0 ||
        c.num_classes < 0) {
        return uvit_flaw::sizes;
    }
    if (c.img_size % c.patch_size != 0) { return uvit_flaw::patches; }
    if (c.depth < 2 || c.depth % 2 != 0) { return uvit_flaw::depth; }
    return c.embed_dim % c.num_heads != 0 ? uvit_flaw::heads : uvit_flaw::none;
}

[[nodiscard]] constexpr nn::vit_embed embed_of(const uvit_config& c) noexcept {
    const int grid = c.img_size / c.patch_size;
    return {c.in_chans, grid, grid, c.patch_size, c.embed_dim, grid, c.num_classes};
}
[[nodiscard]] constexpr nn::vit_head head_of(const uvit_config& c) noexcept { return {embed_of(c), c.conv}; }
[[nodiscard]] constexpr nn::vit_block vit_block_of(const uvit_config& c, bool skip) noexcept {
    const nn::vit_embed embed = embed_of(c);
    return {embed.leading(), embed.rows, embed.columns, c.embed_dim, c.num_heads, skip};
}

template <uvit_config C>
struct uvit_parts {
    static constexpr std::size_t half = static_cast<std::size_t>(C.depth / 2);

    [[nodiscard]] static constexpr label in_name(std::size_t i) {
        return label{"in_blocks."} + static_cast<unsigned>(i);
    }
    [[nodiscard]] static constexpr label out_name(std::size_t i) {
        return label{"out_blocks."} + static_cast<unsigned>(i);
    }

    /// Names the type of layer I by its return type; never called.
    template <std::size_t I>
    [[nodiscard]] static constexpr auto layer_type() {
        if constexpr (I == 0) {
            return std::type_identity<nn::block<"embed", embed_of(C)>>{};
        } else if constexpr (I <= half) {
            return std::type_identity<nn::block<in_name(I - 1), vit_block_of(C, false)>>{};
        } else if constexpr (I == half + 1) {
            return std::type_identity<nn::block<"mid_block", vit_block_of(C, false)>>{};
        } else if constexpr (I <= 2 * half + 1) {
            return std::type_identity<nn::block<out_name(I - half - 2), vit_block_of(C, true)>>{};
        } else {
            return std::type_identity<nn::block<"final", head_of(C)>>{};
        }
    }
    template <std::size_t I>
    using layer_at = typename decltype(layer_type<I>())::type;
    /// Edges in the order in which their targets run: from the last block of the first half to the first of the second.
    template <std::size_t E>
    using skip_at = skip<in_name(half - 1 - E), out_name(E)>;

    template <std::size_t... L, std::size_t... E>
    static fitting_model<C.name, layers<layer_at<L>...>, skips<skip_at<E>...>> assemble(std::index_sequence<L...>,
                                                                                        std::index_sequence<E...>);
    using model_type = decltype(assemble(std::make_index_sequence<2 * half + 3>{}, std::make_index_sequence<half>{}));
};

/// Whether C describes a U-ViT; if not, compilation stops with a one-line error.
template <uvit_config C>
[[nodiscard]] consteval bool explain_uvit() {
    constexpr uvit_flaw found = flaw_of(C);
    static_assert(found != uvit_flaw::name, "pulse: a uvit_config needs a name");
    static_assert(found != uvit_flaw::sizes,
                  "pulse: the sizes of a uvit must be positive, its number of classes not negative");
    static_assert(found != uvit_flaw::patches, "pulse: patch_size of a uvit must divide img_size");
    static_assert(found != uvit_flaw::depth, "pulse: depth of a uvit must be even and at least 2");
    static_assert(found != uvit_flaw::heads, "pulse: num_heads of a uvit must divide embed_dim");
    return found == uvit_flaw::none;
}

/// The backbone that a uvit_config describes, with the parameter names of baofff/U-ViT. An invalid config stops
/// compilation with a one-line error.
template <uvit_config C>
    requires(explain_uvit<C>())
struct uvit : uvit_parts<C>::model_type {
    static constexpr uvit_config config = C;
};

} // namespace pulse
