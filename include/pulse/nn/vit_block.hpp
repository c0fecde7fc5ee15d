#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// One block of U-ViT: with a skip, x = skip_linear(concat(x, skip)) first; then x += attn(norm1(x)); x +=
/// mlp(norm2(x)). These are its three parts, or two. Queries, keys and values are one projection without bias; the
/// hidden width is 4 x width. The concatenation is never made: skip_linear reads both; the GELU's output is made again
/// for the weight gradient.
struct vit_block {
    int leading{}; ///< tokens before those of patches
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
    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, 1e-5}; }

    using whole = vit_block;
    struct join;
    struct self_attention;
    struct feed_forward;
    [[nodiscard]] constexpr int parts() const noexcept { return skip ? 3 : 2; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return {}; }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return false; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const;
};

struct vit_block::join : vit_block {
    /// skip_linear: a convolution of one pixel reads two sources.
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
        workspace_piece nobody; ///< the input's gradient where nobody reads it
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

struct vit_block::self_attention : vit_block {
    [[nodiscard]] constexpr attention_shape core() const noexcept { return {tokens(), heads, width / heads}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {width, width}; }

    struct pieces {
        weight_piece norm, to_q, to_k, to_v, to_out;
        saved_piece normal, q, k, v, mixed; ///< mixed: the heads' output
        statistics_piece log_sums, statistics;
        deferred_piece dq, dk, dv;
        workspace_piece inner;  ///< a gradient
        workspace_piece nobody; ///< the input's gradient where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("norm1", width);
        // Rows of the queries, then of the keys and the values.
        p.to_q = d.linear("attn.qkv", tokens(), {width, 3 * width}, false);
        p.to_k.begin = p.to_q.begin + projection().weight_elements();
        p.to_v.begin = p.to_k.begin + projection().weight_elements();
        p.to_out = d.linear("attn.proj", tokens(), projection().matrix());
        d.attention(core());
        d.save(states(), p.normal, p.q, p.k, p.v, p.mixed);
        d.statistics(std::int64_t{heads} * tokens(), p.log_sums);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.defer(states(), p.dq, p.dk, p.dv);
        d.work(states(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        on.layer_norm(norm(), vectors, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        on.linear(projection().matrix(), vectors, f[p.normal], f[p.to_q], nullptr, f[p.q], into::write);
        on.linear(projection().matrix(), vectors, f[p.normal], f[p.to_k], nullptr, f[p.k], into::write);
        on.linear(projection().matrix(), vectors, f[p.normal], f[p.to_v], nullptr, f[p.v], into::write);
        on.attention(core(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply(on, vectors, f[p.mixed], f[p.to_out], f.output);
        on.add(f.batch * states(), f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        const linear_shape matrix = projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(matrix, vectors, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(core(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.inner], f[p.dq],
                              f[p.dk], f[p.dv]);
        on.linear_backward_input(matrix, vectors, f[p.dq], f[p.to_q], f[p.inner], into::write);
        on.linear_backward_input(matrix, vectors, f[p.dk], f[p.to_k], f[p.inner], into::add);
        on.linear_backward_input(matrix, vectors, f[p.dv], f[p.to_v], f[p.inner], into::add);
        on.copy(f.batch * states(), f.output_gradient, target);
        on.layer_norm_backward(norm(), vectors, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                               f.gradient(p.norm), f.bias_gradient(p.norm), into::add);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        const linear_shape matrix = projection().matrix();
        on.linear_backward_weight(matrix, vectors, f[p.normal], f[p.dq], f.gradient(p.to_q), nullptr);
        on.linear_backward_weight(matrix, vectors, f[p.normal], f[p.dk], f.gradient(p.to_k), nullptr);
        on.linear_backward_weight(matrix, vectors, f[p.normal], f[p.dv], f.gradient(p.to_v), nullptr);
        projection().apply_backward_weight(on, vectors, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

struct vit_block::feed_forward : vit_block {
    [[nodiscard]] constexpr linear widening() const noexcept { return {width, 4 * width}; }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {4 * width, width}; }

    struct pieces {
        weight_piece norm, widening, narrowing;
        saved_piece normal, hidden; ///< hidden: the GELU's input
        statistics_piece statistics;
        deferred_piece dhidden;
        workspace_piece active; ///< the GELU's output
        workspace_piece inner, nobody;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("norm2", width);
        p.widening = d.linear("mlp.fc1", tokens(), widening().matrix());
        p.narrowing = d.linear("mlp.fc2", tokens(), narrowing().matrix());
        d.save(states(), p.normal);
        d.save(4 * states(), p.hidden);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.defer(4 * states(), p.dhidden);
        d.work(4 * states(), p.active);
        d.work_again();
        d.work(states(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        const std::int64_t n = f.batch * states();
        on.layer_norm(norm(), vectors, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        widening().apply(on, vectors, f[p.normal], f[p.widening], f[p.hidden]);
        on.gelu(4 * n, f[p.hidden], f[p.active]);
        narrowing().apply(on, vectors, f[p.active], f[p.narrowing], f.output);
        on.add(n, f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        const std::int64_t n = f.batch * states();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(narrowing().matrix(), vectors, f.output_gradient, f[p.narrowing], f[p.dhidden],
                                 into::write);
        on.gelu_backward(4 * n, f[p.hidden], f[p.dhidden], f[p.dhidden], into::write);
        on.linear_backward_input(widening().matrix(), vectors, f[p.dhidden], f[p.widening], f[p.inner], into::write);
        on.copy(n, f.output_gradient, target);
        on.layer_norm_backward(norm(), vectors, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                               f.gradient(p.norm), f.bias_gradient(p.norm), into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t vectors = std::int64_t{f.batch} * tokens();
        widening().apply_backward_weight(on, vectors, f[p.normal], f[p.dhidden], f.gradient(p.widening));
        on.gelu(4 * f.batch * states(), f[p.hidden], f[p.active]);
        narrowing().apply_backward_weight(on, vectors, f[p.active], f.output_gradient, f.gradient(p.narrowing));
    }
};

template <class Use>
constexpr void vit_block::use_part(int k, const Use& use) const {
    switch (skip ? k : k + 1) {
    case 0: return use("", join{*this});
    case 1: return use("", self_attention{*this});
    default: return use("", feed_forward{*this});
    }
}

} // namespace pulse::nn
