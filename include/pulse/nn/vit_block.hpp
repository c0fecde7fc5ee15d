#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/token_parts.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// One block of U-ViT: with a skip, x = skip_linear(concat(x, skip)) first; then x += attn(norm1(x)); x +=
/// mlp(norm2(x)). Each of these is a part of the layer. Queries, keys and values are one projection; the hidden width
/// is 4 x width. The concatenation is never materialised: skip_linear reads both.
struct vit_block {
    static constexpr bool writes_gradients = true;

    int leading{}; ///< tokens before the patch tokens
    int rows{};
    int columns{}; ///< of patches
    int width{};
    int heads{};
    bool skip{};

    [[nodiscard]] constexpr int tokens() const noexcept { return leading + rows * columns; }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * width; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (leading < 0 || rows <= 0 || columns <= 0 || width <= 0 || heads <= 0) { return flaw::size; }
        return width % heads != 0 ? flaw::heads : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }
    [[nodiscard]] constexpr token_attention attention() const noexcept {
        return {
            .tokens = tokens(), .width = width, .heads = heads, .norm_name = "norm1", .name = "attn", .joined = true};
    }
    [[nodiscard]] constexpr token_feed_forward feed_forward() const noexcept {
        return {.tokens = tokens(),
                .width = width,
                .hidden = 4 * width,
                .between = activation::gelu,
                .norm_name = "norm2",
                .widening_name = "mlp.fc1",
                .narrowing_name = "mlp.fc2"};
    }

    using whole = vit_block;
    struct join;
    [[nodiscard]] constexpr int parts() const noexcept { return skip ? 3 : 2; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return {}; }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return false; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const;
};

struct vit_block::join : vit_block {
    /// skip_linear as a 1x1 convolution, which can read two sources.
    [[nodiscard]] constexpr conv joining() const noexcept {
        return {.in_channels = width,
                .skip_channels = width,
                .out_channels = width,
                .height = tokens(),
                .width = 1,
                .kernel = 1,
                .pad_before = 0,
                .pad_after = 0};
    }

    struct pieces {
        weight_piece skip;
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.reads_skip(input());
        p.skip = d.linear("skip_linear", tokens(), {2 * width, width});
        d.work(states(), p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        joining().apply(on, f.batch, f.input, f.skip, f[p.skip], f.output, into::write);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        on.conv2d_pair_backward_input(joining().window(), width, f.batch, f.output_gradient, f[p.skip],
                                      f.input_gradient != nullptr ? f.input_gradient : f[p.nobody], f.skip_gradient,
                                      into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        joining().apply_backward_weight(on, f.batch, f.input, f.skip, f.output_gradient, f.gradient(p.skip));
    }
};

template <class Use>
constexpr void vit_block::use_part(int k, const Use& use) const {
    switch (skip ? k : k + 1) {
    case 0: return use("", join{*this});
    case 1: return use("", attention());
    default: return use("", feed_forward());
    }
}

} // namespace pulse::nn
