#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/nn/token_parts.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// One block of Hunyuan-DiT (diffusers' HunyuanDiTBlock): with a skip, x = skip_linear(skip_norm(concat(x, skip)))
/// first; then x += attn1(norm1(x) + shift(temb)); x += attn2(norm2(x), text); x += ff(norm3(x)), with GELU's tanh
/// form. Each of these is a part of the layer.
///
/// Queries and keys of both attentions are normed per head and, but for those of the text, rotated by their position.
/// The rotation is a constant that every device makes for itself. The conditioning is silu(temb), see
/// hunyuan_conditioning.
struct dit_block {
    static constexpr bool writes_gradients = true;

    int rows{};    ///< of tokens
    int columns{}; ///< of tokens
    int width{};
    int heads{};
    int hidden{}; ///< of the feed-forward
    int context_tokens{};
    int context_features{};
    double span{}; ///< of the positions on each axis
    bool skip{};

    [[nodiscard]] constexpr int tokens() const noexcept { return rows * columns; }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens()} * width; }
    /// Keys or values of the text.
    [[nodiscard]] constexpr std::int64_t text() const noexcept { return std::int64_t{context_tokens} * width; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (rows <= 0 || columns <= 0 || width <= 0 || heads <= 0 || hidden <= 0 || context_tokens <= 0 ||
            context_features <= 0 || span <= 0.0) {
            return flaw::size;
        }
        return width % heads != 0 || width / heads % 4 != 0 ? flaw::heads : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }

    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, 1e-6}; }
    [[nodiscard]] constexpr layer_norm_shape head_norm() const noexcept { return {width / heads, 1e-6}; }
    [[nodiscard]] constexpr rotary_shape turn() const noexcept { return {rows, columns, heads, width / heads, span}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {width, width}; }

    [[nodiscard]] constexpr token_feed_forward feed_forward() const noexcept {
        return {.tokens = tokens(),
                .width = width,
                .hidden = hidden,
                .between = activation::gelu_tanh,
                .norm_name = "norm3",
                .widening_name = "ff.net.0.proj",
                .narrowing_name = "ff.net.2",
                .epsilon = 1e-6};
    }

    using whole = dit_block;
    struct join;
    struct self_attention;
    struct cross_attention;
    [[nodiscard]] constexpr int parts() const noexcept { return skip ? 4 : 3; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return {}; }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return false; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const;

protected:
    /// Every head of every row on its own.
    template <backend B, class T, class A>
    void norm_heads(B& on, std::int64_t all, const T* x, const T* weight, T* y, A* statistics) const {
        on.layer_norm(head_norm(), all * heads, x, weight, weight + width / heads, y, statistics);
    }
    template <backend B, class T, class A>
    void unnorm_heads(B& on, std::int64_t all, const T* x, const T* weight, const A* statistics, const T* dy, T* dx,
                      gradient_place<A> dweight) const {
        on.layer_norm_backward(head_norm(), all * heads, x, weight, statistics, dy, dx, dweight,
                               dweight + width / heads, into::write);
    }
};

struct dit_block::join : dit_block {
    [[nodiscard]] constexpr layer_norm_shape skip_norm() const noexcept { return {2 * width, 1e-6}; }
    [[nodiscard]] constexpr linear joining() const noexcept { return {2 * width, width}; }

    struct pieces {
        weight_piece norm, joining;
        saved_piece normal;
        statistics_piece statistics;
        workspace_piece concatenation, dnormal, dconcatenation;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        d.reads_skip(input());
        p.norm = d.norm("skip_norm", 2 * width);
        p.joining = d.linear("skip_linear", tokens(), joining().matrix());
        d.save(2 * states(), p.normal);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.work(2 * states(), p.concatenation, p.dnormal, p.dconcatenation);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        concatenate(on, f, f[p.concatenation]);
        on.layer_norm(skip_norm(), all, f[p.concatenation], f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        joining().apply(on, all, f[p.normal], f[p.joining], f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        concatenate(on, f, f[p.concatenation]);
        on.linear_backward_input(joining().matrix(), all, f.output_gradient, f[p.joining], f[p.dnormal], into::write);
        on.layer_norm_backward(skip_norm(), all, f[p.concatenation], f[p.norm], f[p.statistics], f[p.dnormal],
                               f[p.dconcatenation], f.gradient(p.norm), f.bias_gradient(p.norm), into::write);
        if (f.input_gradient != nullptr) {
            on.copy_rows(all, width, f[p.dconcatenation], 2 * width, f.input_gradient, width);
        }
        on.copy_rows(all, width, f[p.dconcatenation] + width, 2 * width, f.skip_gradient, width);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        joining().apply_backward_weight(on, std::int64_t{f.batch} * tokens(), f[p.normal], f.output_gradient,
                                        f.gradient(p.joining));
    }

private:
    /// y [tokens][2 * width]: each token of the input, then of the skip.
    template <backend B, class T, class A>
    void concatenate(B& on, const layer_frame<T, A>& f, T* y) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        on.copy_rows(all, width, f.input, width, y, 2 * width);
        on.copy_rows(all, width, f.skip, width, y + width, 2 * width);
    }
};

struct dit_block::self_attention : dit_block {
    [[nodiscard]] constexpr adaptive_norm_shape norm1() const noexcept { return {width, tokens(), width, 1e-6}; }
    [[nodiscard]] constexpr attention_shape core() const noexcept { return {tokens(), heads, width / heads}; }

    struct pieces {
        weight_piece to_shift, norm;
        weight_piece norm_q, norm_k, to_q, to_k, to_v, to_out;
        saved_piece normal, q, k, v, turned_q, turned_k, mixed; ///< turned: normed and rotated
        statistics_piece statistics, statistics_q, statistics_k, log_sums;
        deferred_piece dq, dk, dv, dshift;
        workspace_piece shift;
        workspace_piece inner, dturned_q, dturned_k, nobody; ///< nobody: the input's, where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        const linear_shape matrix = projection().matrix();
        const std::int64_t rows_of_heads = std::int64_t{tokens()} * heads;
        pieces p{};
        d.reads_conditioning(width);
        p.to_shift = d.linear("norm1.linear", 1, matrix);
        p.norm = d.norm("norm1.norm", width);
        p.norm_q = d.norm("attn1.norm_q", width / heads);
        p.norm_k = d.norm("attn1.norm_k", width / heads);
        p.to_q = d.linear("attn1.to_q", tokens(), matrix);
        p.to_k = d.linear("attn1.to_k", tokens(), matrix);
        p.to_v = d.linear("attn1.to_v", tokens(), matrix);
        p.to_out = d.linear("attn1.to_out.0", tokens(), matrix);
        d.attention(core());
        d.save(states(), p.normal, p.q, p.k, p.v, p.turned_q, p.turned_k, p.mixed);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.statistics(2 * rows_of_heads, p.statistics_q, p.statistics_k);
        d.statistics(rows_of_heads, p.log_sums);
        d.defer(states(), p.dq, p.dk, p.dv);
        d.defer(width, p.dshift);
        d.work(width, p.shift);
        d.work_again();
        d.work(states(), p.inner, p.dturned_q, p.dturned_k, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        projection().apply(on, f.batch, f.conditioning, f[p.to_shift], f[p.shift]);
        on.adaptive_norm(norm1(), f.batch, f.input, f[p.norm], f.bias(p.norm), nullptr, f[p.shift], f[p.normal],
                         f[p.statistics]);
        projection().apply(on, all, f[p.normal], f[p.to_q], f[p.q]);
        projection().apply(on, all, f[p.normal], f[p.to_k], f[p.k]);
        projection().apply(on, all, f[p.normal], f[p.to_v], f[p.v]);
        norm_heads(on, all, f[p.q], f[p.norm_q], f[p.turned_q], f[p.statistics_q]);
        norm_heads(on, all, f[p.k], f[p.norm_k], f[p.turned_k], f[p.statistics_k]);
        on.rotary(turn(), f.batch, f[p.turned_q], f[p.turned_q]);
        on.rotary(turn(), f.batch, f[p.turned_k], f[p.turned_k]);
        on.attention(core(), f.batch, f[p.turned_q], f[p.turned_k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply_onto(on, all, f[p.mixed], f[p.to_out], f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const linear_shape matrix = projection().matrix();
        on.linear_backward_input(matrix, all, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(core(), f.batch, f[p.turned_q], f[p.turned_k], f[p.v], f[p.mixed], f[p.log_sums],
                              f[p.inner], f[p.dturned_q], f[p.dturned_k], f[p.dv]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_q], f[p.dturned_q]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_k], f[p.dturned_k]);
        unnorm_heads(on, all, f[p.q], f[p.norm_q], f[p.statistics_q], f[p.dturned_q], f[p.dq], f.gradient(p.norm_q));
        unnorm_heads(on, all, f[p.k], f[p.norm_k], f[p.statistics_k], f[p.dturned_k], f[p.dk], f.gradient(p.norm_k));
        on.linear_backward_input(matrix, all, f[p.dq], f[p.to_q], f[p.inner], into::write);
        on.linear_backward_input(matrix, all, f[p.dk], f[p.to_k], f[p.inner], into::add);
        on.linear_backward_input(matrix, all, f[p.dv], f[p.to_v], f[p.inner], into::add);

        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        norm_backward_onto(on, f.batch * states(), f.output_gradient, target, [&](auto... how) {
            on.adaptive_norm_backward(norm1(), f.batch, f.input, f[p.norm], f.bias(p.norm), nullptr, f[p.statistics],
                                      f[p.inner], target, f.gradient(p.norm), f.bias_gradient(p.norm), nullptr,
                                      f[p.dshift], how...);
        });
        on.linear_backward_input(matrix, f.batch, f[p.dshift], f[p.to_shift], f.conditioning_gradient, into::add);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        projection().apply_backward_weight(on, f.batch, f.conditioning, f[p.dshift], f.gradient(p.to_shift));
        projection().apply_backward_weight(on, all, f[p.normal], f[p.dq], f.gradient(p.to_q));
        projection().apply_backward_weight(on, all, f[p.normal], f[p.dk], f.gradient(p.to_k));
        projection().apply_backward_weight(on, all, f[p.normal], f[p.dv], f.gradient(p.to_v));
        projection().apply_backward_weight(on, all, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

struct dit_block::cross_attention : dit_block {
    [[nodiscard]] constexpr attention_shape core() const noexcept {
        return {tokens(), heads, width / heads, context_tokens};
    }
    [[nodiscard]] constexpr linear text_projection() const noexcept { return {context_features, width}; }

    struct pieces {
        weight_piece norm_q, norm_k, to_q, to_k, to_v, to_out, norm;
        saved_piece normal, q, turned_q, mixed, k, normal_k, v;
        statistics_piece statistics, statistics_q, statistics_k, log_sums;
        deferred_piece dq, dk, dv;
        workspace_piece inner, dturned_q, dnormal_k, nobody;
    };
    constexpr pieces describe(description& d) const {
        const linear_shape matrix = projection().matrix();
        const std::int64_t rows_of_heads = std::int64_t{tokens()} * heads;
        pieces p{};
        d.reads_context({context_tokens, context_features, 0});
        p.norm_q = d.norm("attn2.norm_q", width / heads);
        p.norm_k = d.norm("attn2.norm_k", width / heads);
        p.to_q = d.linear("attn2.to_q", tokens(), matrix);
        p.to_k = d.linear("attn2.to_k", context_tokens, text_projection().matrix());
        p.to_v = d.linear("attn2.to_v", context_tokens, text_projection().matrix());
        p.to_out = d.linear("attn2.to_out.0", tokens(), matrix);
        d.attention(core());
        p.norm = d.norm("norm2", width);
        d.save(states(), p.normal, p.q, p.turned_q, p.mixed);
        d.save(text(), p.k, p.normal_k, p.v);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.statistics(2 * rows_of_heads, p.statistics_q);
        d.statistics(2 * std::int64_t{context_tokens} * heads, p.statistics_k);
        d.statistics(rows_of_heads, p.log_sums);
        d.defer(states(), p.dq);
        d.defer(text(), p.dk, p.dv);
        d.work(states(), p.inner, p.dturned_q, p.nobody);
        d.work(text(), p.dnormal_k);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        on.layer_norm(norm(), all, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        projection().apply(on, all, f[p.normal], f[p.to_q], f[p.q]);
        text_projection().apply(on, texts, f.context, f[p.to_k], f[p.k]);
        text_projection().apply(on, texts, f.context, f[p.to_v], f[p.v]);
        norm_heads(on, all, f[p.q], f[p.norm_q], f[p.turned_q], f[p.statistics_q]);
        norm_heads(on, texts, f[p.k], f[p.norm_k], f[p.normal_k], f[p.statistics_k]);
        on.rotary(turn(), f.batch, f[p.turned_q], f[p.turned_q]);
        on.attention(core(), f.batch, f[p.turned_q], f[p.normal_k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply_onto(on, all, f[p.mixed], f[p.to_out], f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        const linear_shape matrix = projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(matrix, all, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(core(), f.batch, f[p.turned_q], f[p.normal_k], f[p.v], f[p.mixed], f[p.log_sums],
                              f[p.inner], f[p.dturned_q], f[p.dnormal_k], f[p.dv]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_q], f[p.dturned_q]);
        unnorm_heads(on, all, f[p.q], f[p.norm_q], f[p.statistics_q], f[p.dturned_q], f[p.dq], f.gradient(p.norm_q));
        unnorm_heads(on, texts, f[p.k], f[p.norm_k], f[p.statistics_k], f[p.dnormal_k], f[p.dk], f.gradient(p.norm_k));
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection().matrix();
            on.linear_backward_input(from_text, texts, f[p.dk], f[p.to_k], f.context_gradient, into::add);
            on.linear_backward_input(from_text, texts, f[p.dv], f[p.to_v], f.context_gradient, into::add);
        }
        on.linear_backward_input(matrix, all, f[p.dq], f[p.to_q], f[p.inner], into::write);
        norm_backward_onto(on, f.batch * states(), f.output_gradient, target, [&](auto... how) {
            on.layer_norm_backward(norm(), all, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                                   f.gradient(p.norm), f.bias_gradient(p.norm), how...);
        });
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        projection().apply_backward_weight(on, all, f[p.normal], f[p.dq], f.gradient(p.to_q));
        text_projection().apply_backward_weight(on, texts, f.context, f[p.dk], f.gradient(p.to_k));
        text_projection().apply_backward_weight(on, texts, f.context, f[p.dv], f.gradient(p.to_v));
        projection().apply_backward_weight(on, all, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

template <class Use>
constexpr void dit_block::use_part(int k, const Use& use) const {
    switch (skip ? k : k + 1) {
    case 0: return use("", join{*this});
    case 1: return use("", self_attention{*this});
    case 2: return use("", cross_attention{*this});
    default: return use("", feed_forward());
    }
}

} // namespace pulse::nn
