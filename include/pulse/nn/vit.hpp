#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>

namespace pulse::nn {

/// The beginning of U-ViT: patches of the image become tokens; the time, and the class where there are classes, are tokens
/// before them, and every position has a learned vector. Parameters: patch_embed.proj, label_emb, pos_embed.
struct vit_embed {
    int channels{};
    int size{}; ///< height and width of the image
    int patch{};
    int width{};
    int classes{}; ///< 0: there is no class token

    [[nodiscard]] constexpr int patches() const noexcept { return (size / patch) * (size / patch); }
    [[nodiscard]] constexpr int tokens() const noexcept { return patches() + (classes != 0 ? 2 : 1); }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || size <= 0 || patch <= 0 || width <= 0 || classes < 0) { return flaw::size; }
        return size % patch != 0 ? flaw::window : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, size, size}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label&) const {
        d.conv("patch_embed.proj", patches(), channels, width, patch);
        if (classes != 0) { d.parameter("label_emb.weight", {classes, width}); }
        d.parameter("pos_embed", {1, tokens(), width});
        d.keep(elements(input()));
    }
};

/// One block of U-ViT: with a skip, x = skip_linear(concat(x, skip)) first; then x += attn(norm1(x)); x += mlp(norm2(x)).
/// Queries, keys and values are one projection without bias; the hidden width is 4 x width.
struct vit_block {
    int tokens{};
    int width{};
    int heads{};
    bool skip{};

    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens} * width; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (tokens <= 0 || width <= 0 || heads <= 0) { return flaw::size; }
        return width % heads != 0 ? flaw::heads : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {tokens, width, 0}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return skip ? input() : extent{}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        if (skip) {
            d.linear("skip_linear", tokens, 2 * width, width);
            d.keep(2 * states());
        }
        d.norm("norm1", width);
        d.linear("attn.qkv", tokens, width, 3 * width, false);
        d.linear("attn.proj", tokens, width, width);
        d.attention(tokens, tokens, width);
        d.norm("norm2", width);
        d.linear("mlp.fc1", tokens, width, 4 * width);
        d.linear("mlp.fc2", tokens, 4 * width, width);
        // inputs of norm1, qkv, proj, norm2 and fc1; q, k and v; both sides of the GELU
        d.keep(5 * states());
        d.keep(3 * states());
        d.keep(4 * states());
        d.keep(4 * states());
    }
};

/// The end of U-ViT: norm, decoder_pred, the tokens of patches become an image, and a 3x3 convolution (final_layer) if
/// there is one.
struct vit_head {
    vit_embed embed{};
    bool convolves{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return embed.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return embed.input(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    /// Every token goes through decoder_pred, those that are no patch too.
    template <class Description>
    constexpr void describe(Description& d, const label&) const {
        d.norm("norm", embed.width);
        d.linear("decoder_pred", embed.tokens(), embed.width, embed.patch * embed.patch * embed.channels);
        d.keep(elements(input()));
        d.keep(elements(input()));
        if (convolves) {
            d.conv("final_layer", std::int64_t{embed.size} * embed.size, embed.channels, embed.channels, 3);
            d.keep(elements(output()));
        }
    }
};

} // namespace pulse::nn
