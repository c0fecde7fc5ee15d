#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>

namespace pulse::nn {

/// Patches of an image become tokens. Parameters: <name>.proj.
struct patch_embed {
    int channels{};
    int size{}; ///< height and width of the image
    int patch{};
    int width{};

    [[nodiscard]] constexpr int tokens() const noexcept { return (size / patch) * (size / patch); }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || size <= 0 || patch <= 0 || width <= 0) { return flaw::size; }
        return size % patch != 0 ? flaw::window : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, size, size}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        d.conv("proj", tokens(), channels, width, patch);
        d.keep(elements(input()));
    }
};

/// One block of Hunyuan-DiT (diffusers' HunyuanDiTBlock): with a skip, x = skip_linear(skip_norm(concat(x, skip))) first;
/// then x += attn1(norm1(x) + shift(temb)); x += attn2(norm2(x), text); x += ff(norm3(x)).
///
/// Queries and keys of both attentions are normed per head and, but for those of the text, rotated by their position. The
/// rotation is a constant that every device makes for itself.
struct dit_block {
    int tokens{};
    int width{};
    int heads{};
    int hidden{}; ///< of the feed-forward
    int context_tokens{};
    int context_features{};
    bool skip{};

    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens} * width; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (tokens <= 0 || width <= 0 || heads <= 0 || hidden <= 0 || context_tokens <= 0 || context_features <= 0) {
            return flaw::size;
        }
        return width % heads != 0 ? flaw::heads : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {tokens, width, 0}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return skip ? input() : extent{}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {context_tokens, context_features, 0}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return width; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        const std::int64_t text = std::int64_t{context_tokens} * width;
        d.within(name);
        if (skip) {
            d.norm("skip_norm", 2 * width);
            d.linear("skip_linear", tokens, 2 * width, width);
            d.keep(2 * states()); // input of skip_norm
            d.keep(2 * states()); // input of skip_linear
        }
        d.linear("norm1.linear", 1, width, width);
        d.keep(width); // SiLU(temb)
        d.norm("norm1.norm", width);
        describe_heads(d, "attn1.norm_q", "attn1.norm_k");
        d.linear("attn1.to_q", tokens, width, width);
        d.linear("attn1.to_k", tokens, width, width);
        d.linear("attn1.to_v", tokens, width, width);
        d.linear("attn1.to_out.0", tokens, width, width);
        d.attention(tokens, tokens, width);
        // inputs of norm1, of q, k and v, of norm_q and norm_k; what attends; the inputs of to_out and of norm2
        d.keep(9 * states());
        describe_heads(d, "attn2.norm_q", "attn2.norm_k");
        d.linear("attn2.to_q", tokens, width, width);
        d.linear("attn2.to_k", context_tokens, context_features, width);
        d.linear("attn2.to_v", context_tokens, context_features, width);
        d.linear("attn2.to_out.0", tokens, width, width);
        d.attention(tokens, context_tokens, width);
        // inputs of to_q and of norm_q; what attends; the inputs of to_out and of norm3
        d.keep(5 * states());
        d.keep(3 * text); // k before and after norm_k; v
        d.norm("norm2", width);
        d.norm("norm3", width);
        d.linear("ff.net.0.proj", tokens, width, hidden);
        d.linear("ff.net.2", tokens, hidden, width);
        // input of the feed-forward; both sides of the GELU
        d.keep(states());
        d.keep(std::int64_t{tokens} * hidden);
        d.keep(std::int64_t{tokens} * hidden);
    }

private:
    template <class Description>
    constexpr void describe_heads(Description& d, std::string_view query_norm, std::string_view key_norm) const {
        d.norm(query_norm, width / heads);
        d.norm(key_norm, width / heads);
    }
};

/// The end of Hunyuan-DiT: norm_out, scaled and shifted by the conditioning, proj_out, and tokens become an image of
/// `out_channels`. Parameters: norm_out.linear, proj_out.
struct dit_head {
    patch_embed embed{};
    int out_channels{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return out_channels <= 0 ? flaw::size : embed.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return embed.output(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {out_channels, embed.size, embed.size}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return embed.width; }

    template <class Description>
    constexpr void describe(Description& d, const label&) const {
        d.linear("norm_out.linear", 1, embed.width, 2 * embed.width);
        d.linear("proj_out", embed.tokens(), embed.width, embed.patch * embed.patch * out_channels);
        d.keep(2 * std::int64_t{embed.width}); // SiLU(temb); 1 + scale
        d.keep(3 * elements(input()));         // inputs of the norm, of the scaling and of proj_out
    }
};

} // namespace pulse::nn
