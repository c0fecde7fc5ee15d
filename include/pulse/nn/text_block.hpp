#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/token_parts.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::nn {

/// The sizes of a transformer over the pixels of an image that also attends to a text (diffusers' Transformer2DModel of
/// BasicTransformerBlocks).
struct text_attention {
    int channels{};
    int height{};
    int width{};
    int heads{};
    int context_tokens{};
    int context_features{};
    int groups{}; ///< of the GroupNorm before the blocks

    [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return std::int64_t{height} * width; }
    [[nodiscard]] constexpr std::int64_t image() const noexcept { return channels * tokens(); }
    [[nodiscard]] constexpr sample_dims shape() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr group_norm_shape norm() const noexcept {
        return {channels, 0, groups, height * width, 1e-6, false};
    }
    [[nodiscard]] constexpr linear projection() const noexcept { return {channels, channels}; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || heads <= 0 || context_tokens <= 0 || context_features <= 0 ||
            groups <= 0) {
            return flaw::size;
        }
        if (channels % groups != 0) { return flaw::groups; }
        return channels % heads != 0 ? flaw::heads : flaw::none;
    }

    // One block: x += attn1(norm1(x)); x += attn2(norm2(x), text); x += ff(norm3(x)).

    [[nodiscard]] constexpr token_attention self_attention() const noexcept {
        return {.tokens = height * width, .width = channels, .heads = heads, .norm_name = "norm1", .name = "attn1"};
    }
    [[nodiscard]] constexpr token_attention cross_attention() const noexcept {
        return {.tokens = height * width,
                .width = channels,
                .heads = heads,
                .norm_name = "norm2",
                .name = "attn2",
                .context_tokens = context_tokens,
                .context_features = context_features};
    }
    [[nodiscard]] constexpr token_feed_forward feed_forward() const noexcept {
        return {.tokens = height * width,
                .width = channels,
                .hidden = 4 * channels,
                .between = activation::geglu,
                .norm_name = "norm3",
                .widening_name = "ff.net.0.proj",
                .narrowing_name = "ff.net.2"};
    }

    /// proj_in or proj_out.
    [[nodiscard]] constexpr weight_piece describe_projection(description& d, std::string_view name, bool linear) const {
        return linear ? d.linear(name, tokens(), projection().matrix())
                      : d.conv(name, {channels, channels, height, width, 1, 1, 0, 0});
    }
};

} // namespace pulse::nn
