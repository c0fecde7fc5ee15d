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
/// Queries and keys of both attentions are normed per head and, except the keys of the text, rotated by their position.
/// The rotation is a constant that every device computes itself. The conditioning is silu(temb), see
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
    struct attention;
    [[nodiscard]] constexpr int parts() const noexcept { return skip ? 4 : 3; }
    [[nodiscard]] constexpr sample_dims open() const noexcept { return {}; }
    [[nodiscard]] constexpr bool makes_residual() const noexcept { return false; }
    template <class Use>
    constexpr void use_part(int k, const Use& use) const;

protected:
    /// Norms every head of every row separately.
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
    /// y [tokens][2 * width]: for each token the input's features, then the skip's.
    template <backend B, class T, class A>
    void concatenate(B& on, const layer_frame<T, A>& f, T* y) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        on.copy_rows(all, width, f.input, width, y, 2 * width);
        on.copy_rows(all, width, f.skip, width, y + width, 2 * width);
    }
};

/// Self-attention, whose normed input is shifted by the conditioning, or cross-attention to the text.
struct dit_block::attention : dit_block {
    bool to_text{};

    [[nodiscard]] constexpr int keys() const noexcept { return to_text ? context_tokens : tokens(); }
    [[nodiscard]] constexpr std::int64_t key_states() const noexcept { return std::int64_t{keys()} * width; }
    [[nodiscard]] constexpr adaptive_norm_shape shifted_norm() const noexcept { return {width, tokens(), width, 1e-6}; }
    [[nodiscard]] constexpr attention_shape core() const noexcept {
        return {tokens(), heads, width / heads, to_text ? context_tokens : 0};
    }
    [[nodiscard]] constexpr linear key_projection() const noexcept {
        return {to_text ? context_features : width, width};
    }

    struct pieces {
        weight_piece to_shift, norm;
        weight_piece norm_q, norm_k, to_q, to_k, to_v, to_out;
        saved_piece normal, q, turned_q, mixed, k, turned_k, v; ///< turned: normed and rotated; text keys only normed
        statistics_piece statistics, statistics_q, statistics_k, log_sums;
        deferred_piece dq, dk, dv, dshift;
        workspace_piece shift;
        workspace_piece inner, dturned_q, dturned_k, nobody; ///< nobody: an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        const linear_shape matrix = projection().matrix();
        const linear_shape of_keys = key_projection().matrix();
        const std::int64_t rows_of_heads = std::int64_t{tokens()} * heads;
        const auto name = [&](std::string_view own, std::string_view of_text) { return to_text ? of_text : own; };
        pieces p{};
        if (to_text) {
            d.reads_context({context_tokens, context_features, 0});
        } else {
            d.reads_conditioning(width);
            p.to_shift = d.linear("norm1.linear", 1, matrix);
            p.norm = d.norm("norm1.norm", width);
        }
        p.norm_q = d.norm(name("attn1.norm_q", "attn2.norm_q"), width / heads);
        p.norm_k = d.norm(name("attn1.norm_k", "attn2.norm_k"), width / heads);
        p.to_q = d.linear(name("attn1.to_q", "attn2.to_q"), tokens(), matrix);
        p.to_k = d.linear(name("attn1.to_k", "attn2.to_k"), keys(), of_keys);
        p.to_v = d.linear(name("attn1.to_v", "attn2.to_v"), keys(), of_keys);
        p.to_out = d.linear(name("attn1.to_out.0", "attn2.to_out.0"), tokens(), matrix);
        if (to_text) { p.norm = d.norm("norm2", width); }
        d.attention(core());
        d.save(states(), p.normal, p.q, p.turned_q, p.mixed);
        d.save(key_states(), p.k, p.turned_k, p.v);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics);
        d.statistics(2 * rows_of_heads, p.statistics_q);
        d.statistics(2 * std::int64_t{keys()} * heads, p.statistics_k);
        d.statistics(rows_of_heads, p.log_sums);
        d.defer(states(), p.dq);
        d.defer(key_states(), p.dk, p.dv);
        if (!to_text) {
            d.defer(width, p.dshift);
            d.work(width, p.shift);
            d.work_again();
        }
        d.work(states(), p.inner, p.dturned_q, p.nobody);
        d.work(key_states(), p.dturned_k);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t all_keys = std::int64_t{f.batch} * keys();
        const auto* const of_keys = to_text ? f.context : f[p.normal];
        if (to_text) {
            on.layer_norm(norm(), all, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        } else {
            projection().apply(on, f.batch, f.conditioning, f[p.to_shift], f[p.shift]);
            on.adaptive_norm(shifted_norm(), f.batch, f.input, f[p.norm], f.bias(p.norm), nullptr, f[p.shift],
                             f[p.normal], f[p.statistics]);
        }
        projection().apply(on, all, f[p.normal], f[p.to_q], f[p.q]);
        key_projection().apply(on, all_keys, of_keys, f[p.to_k], f[p.k]);
        key_projection().apply(on, all_keys, of_keys, f[p.to_v], f[p.v]);
        norm_heads(on, all, f[p.q], f[p.norm_q], f[p.turned_q], f[p.statistics_q]);
        norm_heads(on, all_keys, f[p.k], f[p.norm_k], f[p.turned_k], f[p.statistics_k]);
        on.rotary(turn(), f.batch, f[p.turned_q], f[p.turned_q]);
        if (!to_text) { on.rotary(turn(), f.batch, f[p.turned_k], f[p.turned_k]); }
        on.attention(core(), f.batch, f[p.turned_q], f[p.turned_k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply_onto(on, all, f[p.mixed], f[p.to_out], f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t all_keys = std::int64_t{f.batch} * keys();
        const linear_shape matrix = projection().matrix();
        const auto to_keys = [&](auto* gradient) {
            const linear_shape of_keys = key_projection().matrix();
            on.linear_backward_input(of_keys, all_keys, f[p.dk], f[p.to_k], gradient, into::add);
            on.linear_backward_input(of_keys, all_keys, f[p.dv], f[p.to_v], gradient, into::add);
        };
        on.linear_backward_input(matrix, all, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(core(), f.batch, f[p.turned_q], f[p.turned_k], f[p.v], f[p.mixed], f[p.log_sums],
                              f[p.inner], f[p.dturned_q], f[p.dturned_k], f[p.dv]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_q], f[p.dturned_q]);
        if (!to_text) { on.rotary_backward(turn(), f.batch, f[p.dturned_k], f[p.dturned_k]); }
        unnorm_heads(on, all, f[p.q], f[p.norm_q], f[p.statistics_q], f[p.dturned_q], f[p.dq], f.gradient(p.norm_q));
        unnorm_heads(on, all_keys, f[p.k], f[p.norm_k], f[p.statistics_k], f[p.dturned_k], f[p.dk],
                     f.gradient(p.norm_k));
        if (to_text && f.context_gradient != nullptr) { to_keys(f.context_gradient); }
        on.linear_backward_input(matrix, all, f[p.dq], f[p.to_q], f[p.inner], into::write);
        if (!to_text) { to_keys(f[p.inner]); }

        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        norm_backward_onto(on, f.batch * states(), f.output_gradient, target, [&](auto... how) {
            if (to_text) {
                on.layer_norm_backward(norm(), all, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                                       f.gradient(p.norm), f.bias_gradient(p.norm), how...);
            } else {
                on.adaptive_norm_backward(shifted_norm(), f.batch, f.input, f[p.norm], f.bias(p.norm), nullptr,
                                          f[p.statistics], f[p.inner], target, f.gradient(p.norm),
                                          f.bias_gradient(p.norm), nullptr, f[p.dshift], how...);
            }
        });
        if (to_text) { return; }
        on.linear_backward_input(matrix, f.batch, f[p.dshift], f[p.to_shift], f.conditioning_gradient, into::add);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t all_keys = std::int64_t{f.batch} * keys();
        const auto* const of_keys = to_text ? f.context : f[p.normal];
        if (!to_text) {
            projection().apply_backward_weight(on, f.batch, f.conditioning, f[p.dshift], f.gradient(p.to_shift));
        }
        projection().apply_backward_weight(on, all, f[p.normal], f[p.dq], f.gradient(p.to_q));
        key_projection().apply_backward_weight(on, all_keys, of_keys, f[p.dk], f.gradient(p.to_k));
        key_projection().apply_backward_weight(on, all_keys, of_keys, f[p.dv], f.gradient(p.to_v));
        projection().apply_backward_weight(on, all, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

template <class Use>
constexpr void dit_block::use_part(int k, const Use& use) const {
    switch (skip ? k : k + 1) {
    case 0: return use("", join{*this});
    case 1: return use("", attention{*this, false});
    case 2: return use("", attention{*this, true});
    default: return use("", feed_forward());
    }
}

} // namespace pulse::nn
