#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// The numbers of a transformer over the pixels of an image that also attends to a text (diffusers' Transformer2DModel
/// of BasicTransformerBlocks).
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
    /// Keys or values of the text.
    [[nodiscard]] constexpr std::int64_t text() const noexcept { return std::int64_t{context_tokens} * channels; }
    [[nodiscard]] constexpr sample_dims shape() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims context() const noexcept { return {context_tokens, context_features, 0}; }
    [[nodiscard]] constexpr group_norm_shape norm() const noexcept {
        return {channels, 0, groups, height * width, 1e-6, false};
    }
    /// Of the tokens, before each part of a block.
    [[nodiscard]] constexpr layer_norm_shape token_norm() const noexcept { return {channels, 1e-5}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {channels, channels}; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || heads <= 0 || context_tokens <= 0 || context_features <= 0 ||
            groups <= 0) {
            return flaw::size;
        }
        if (channels % groups != 0) { return flaw::groups; }
        return channels % heads != 0 ? flaw::heads : flaw::none;
    }

    /// proj_in or proj_out.
    [[nodiscard]] constexpr weight_piece describe_projection(description& d, std::string_view name, bool linear) const {
        return linear ? d.linear(name, tokens(), projection().matrix())
                      : d.conv(name, {channels, channels, height, width, 1, 1, 0, 0});
    }
};

// One block of a transformer: x += attn1(norm1(x)); x += attn2(norm2(x), text); x += ff(norm3(x)), with a gated GELU
// (GEGLU) of 4 x channels. Only the queries, keys and values have no bias. The product of the feed-forward is made
// again for its weight gradient.

/// y = x + attn1(norm1(x)).
struct text_self_attention {
    text_attention core{};

    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr attention_shape heads() const noexcept {
        return {core.height * core.width, core.heads, core.channels / core.heads};
    }

    struct pieces {
        weight_piece norm, to_q, to_k, to_v, to_out;
        saved_piece normal, q, k, v, mixed; ///< mixed: the heads' output
        statistics_piece statistics, log_sums;
        deferred_piece dq, dk, dv;
        workspace_piece inner;  ///< a gradient
        workspace_piece nobody; ///< the input's gradient where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        const std::int64_t tokens = core.tokens();
        const linear_shape matrix = core.projection().matrix();
        pieces p{};
        p.norm = d.norm("norm1", core.channels);
        p.to_q = d.linear("attn1.to_q", tokens, matrix, false);
        p.to_k = d.linear("attn1.to_k", tokens, matrix, false);
        p.to_v = d.linear("attn1.to_v", tokens, matrix, false);
        p.to_out = d.linear("attn1.to_out.0", tokens, matrix);
        d.attention(heads());
        d.save(core.image(), p.normal, p.q, p.k, p.v, p.mixed);
        d.statistics(2 * tokens, p.statistics);
        d.statistics(core.heads * tokens, p.log_sums);
        d.defer(core.image(), p.dq, p.dk, p.dv);
        d.work(core.image(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const linear_shape matrix = core.projection().matrix();
        on.layer_norm(core.token_norm(), rows, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        on.linear(matrix, rows, f[p.normal], f[p.to_q], nullptr, f[p.q], into::write);
        on.linear(matrix, rows, f[p.normal], f[p.to_k], nullptr, f[p.k], into::write);
        on.linear(matrix, rows, f[p.normal], f[p.to_v], nullptr, f[p.v], into::write);
        on.attention(heads(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        core.projection().apply(on, rows, f[p.mixed], f[p.to_out], f.output);
        on.add(f.batch * core.image(), f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const linear_shape matrix = core.projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(matrix, rows, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(heads(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.inner], f[p.dq],
                              f[p.dk], f[p.dv]);
        on.linear_backward_input(matrix, rows, f[p.dq], f[p.to_q], f[p.inner], into::write);
        on.linear_backward_input(matrix, rows, f[p.dk], f[p.to_k], f[p.inner], into::add);
        on.linear_backward_input(matrix, rows, f[p.dv], f[p.to_v], f[p.inner], into::add);
        on.copy(f.batch * core.image(), f.output_gradient, target);
        on.layer_norm_backward(core.token_norm(), rows, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                               f.gradient(p.norm), f.bias_gradient(p.norm), into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const linear_shape matrix = core.projection().matrix();
        on.linear_backward_weight(matrix, rows, f[p.normal], f[p.dq], f.gradient(p.to_q), nullptr);
        on.linear_backward_weight(matrix, rows, f[p.normal], f[p.dk], f.gradient(p.to_k), nullptr);
        on.linear_backward_weight(matrix, rows, f[p.normal], f[p.dv], f.gradient(p.to_v), nullptr);
        core.projection().apply_backward_weight(on, rows, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

/// y = x + attn2(norm2(x), text).
struct text_cross_attention {
    text_attention core{};

    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr attention_shape heads() const noexcept {
        return {core.height * core.width, core.heads, core.channels / core.heads, core.context_tokens};
    }
    [[nodiscard]] constexpr linear_shape text_projection() const noexcept {
        return {core.context_features, core.channels};
    }

    struct pieces {
        weight_piece norm, to_q, to_k, to_v, to_out;
        saved_piece normal, q, mixed, k, v;
        statistics_piece statistics, log_sums;
        deferred_piece dq, dk, dv;
        workspace_piece inner, nobody;
    };
    constexpr pieces describe(description& d) const {
        const std::int64_t tokens = core.tokens();
        const linear_shape matrix = core.projection().matrix();
        pieces p{};
        d.reads_context(core.context());
        p.to_q = d.linear("attn2.to_q", tokens, matrix, false);
        p.to_k = d.linear("attn2.to_k", core.context_tokens, text_projection(), false);
        p.to_v = d.linear("attn2.to_v", core.context_tokens, text_projection(), false);
        p.to_out = d.linear("attn2.to_out.0", tokens, matrix);
        d.attention(heads());
        p.norm = d.norm("norm2", core.channels);
        d.save(core.image(), p.normal, p.q, p.mixed);
        d.save(core.text(), p.k, p.v);
        d.statistics(2 * tokens, p.statistics);
        d.statistics(core.heads * tokens, p.log_sums);
        d.defer(core.image(), p.dq);
        d.defer(core.text(), p.dk, p.dv);
        d.work(core.image(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const linear_shape matrix = core.projection().matrix();
        on.layer_norm(core.token_norm(), rows, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        on.linear(matrix, rows, f[p.normal], f[p.to_q], nullptr, f[p.q], into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, f[p.to_k], nullptr, f[p.k], into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, f[p.to_v], nullptr, f[p.v], into::write);
        on.attention(heads(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        core.projection().apply(on, rows, f[p.mixed], f[p.to_out], f.output);
        on.add(f.batch * core.image(), f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const linear_shape matrix = core.projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(matrix, rows, f.output_gradient, f[p.to_out], f[p.inner], into::write);
        on.attention_backward(heads(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.inner], f[p.dq],
                              f[p.dk], f[p.dv]);
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection();
            on.linear_backward_input(from_text, text_rows(f.batch), f[p.dk], f[p.to_k], f.context_gradient, into::add);
            on.linear_backward_input(from_text, text_rows(f.batch), f[p.dv], f[p.to_v], f.context_gradient, into::add);
        }
        on.linear_backward_input(matrix, rows, f[p.dq], f[p.to_q], f[p.inner], into::write);
        on.copy(f.batch * core.image(), f.output_gradient, target);
        on.layer_norm_backward(core.token_norm(), rows, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                               f.gradient(p.norm), f.bias_gradient(p.norm), into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t texts = text_rows(f.batch);
        on.linear_backward_weight(core.projection().matrix(), rows, f[p.normal], f[p.dq], f.gradient(p.to_q), nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, f[p.dk], f.gradient(p.to_k), nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, f[p.dv], f.gradient(p.to_v), nullptr);
        core.projection().apply_backward_weight(on, rows, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }

private:
    [[nodiscard]] constexpr std::int64_t text_rows(int batch) const noexcept {
        return std::int64_t{batch} * core.context_tokens;
    }
};

/// y = x + ff(norm3(x)).
struct text_feed_forward {
    text_attention core{};

    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr linear widening() const noexcept { return {core.channels, 8 * core.channels}; }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {4 * core.channels, core.channels}; }

    struct pieces {
        weight_piece norm, widening, narrowing;
        saved_piece normal, hidden; ///< hidden: values and gates
        statistics_piece statistics;
        deferred_piece dhidden;
        workspace_piece product; ///< of values and gates, or its gradient
        workspace_piece inner, nobody;
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("norm3", core.channels);
        p.widening = d.linear("ff.net.0.proj", core.tokens(), widening().matrix());
        p.narrowing = d.linear("ff.net.2", core.tokens(), narrowing().matrix());
        d.save(core.image(), p.normal);
        d.save(8 * core.image(), p.hidden);
        d.statistics(2 * core.tokens(), p.statistics);
        d.defer(8 * core.image(), p.dhidden);
        d.work(4 * core.image(), p.product);
        d.work_again();
        d.work(core.image(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        on.layer_norm(core.token_norm(), rows, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        widening().apply(on, rows, f[p.normal], f[p.widening], f[p.hidden]);
        on.geglu(rows, 4 * core.channels, f[p.hidden], f[p.product]);
        narrowing().apply(on, rows, f[p.product], f[p.narrowing], f.output);
        on.add(f.batch * core.image(), f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        on.linear_backward_input(narrowing().matrix(), rows, f.output_gradient, f[p.narrowing], f[p.product],
                                 into::write);
        on.geglu_backward(rows, 4 * core.channels, f[p.hidden], f[p.product], f[p.dhidden]);
        on.linear_backward_input(widening().matrix(), rows, f[p.dhidden], f[p.widening], f[p.inner], into::write);
        on.copy(f.batch * core.image(), f.output_gradient, target);
        on.layer_norm_backward(core.token_norm(), rows, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                               f.gradient(p.norm), f.bias_gradient(p.norm), into::add);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        widening().apply_backward_weight(on, rows, f[p.normal], f[p.dhidden], f.gradient(p.widening));
        on.geglu(rows, 4 * core.channels, f[p.hidden], f[p.product]);
        narrowing().apply_backward_weight(on, rows, f[p.product], f.output_gradient, f.gradient(p.narrowing));
    }
};

} // namespace pulse::nn
