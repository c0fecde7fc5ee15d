#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/nn/description.hpp>
#include <pulse/nn/linear_batch.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

// The parts of transformer blocks: each adds a function of its normed input to its input.

namespace pulse::nn {

/// y = x + attention(norm(x)): self-attention or, with context_tokens, cross-attention to a text. Only the projections
/// to queries, keys and values have no bias.
struct token_attention {
    int tokens{};
    int width{};
    int heads{};
    std::string_view norm_name{};
    std::string_view name{};
    bool joined{}; ///< queries, keys and values are one parameter
    int context_tokens{};
    int context_features{};

    [[nodiscard]] constexpr bool reads_text() const noexcept { return context_tokens != 0; }
    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens} * width; }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {tokens, width, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }
    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, 1e-5}; }
    [[nodiscard]] constexpr attention_shape shape() const noexcept {
        return {tokens, heads, width / heads, context_tokens};
    }
    [[nodiscard]] constexpr linear projection() const noexcept { return {width, width}; }
    [[nodiscard]] constexpr linear key_projection() const noexcept {
        return {reads_text() ? context_features : width, width};
    }

    struct weights {
        weight_piece to_q, to_k, to_v, to_out;
    };
    struct projections;
    struct pieces {
        weight_piece norm;
        weights to;
        saved_piece normal, mixed; ///< mixed: the heads' output
        saved_piece q, k, v;       ///< adjacent, like their weights, so that one product makes them
        statistics_piece statistics, log_sums;
        deferred_piece dq, dk, dv;
        workspace_piece inner;  ///< a gradient
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const;

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        const linear_shape matrix = projection().matrix();
        on.layer_norm(norm(), all, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        if (reads_text()) {
            on.linear(matrix, all, f[p.normal], f[p.to.to_q], nullptr, f[p.q], into::write);
            linear_batch(on, key_projection().matrix(), key_rows(f.batch), f.context,
                         {{f[p.to.to_k], f[p.k]}, {f[p.to.to_v], f[p.v]}});
        } else {
            linear_batch(on, matrix, all, f[p.normal],
                         {{f[p.to.to_q], f[p.q]}, {f[p.to.to_k], f[p.k]}, {f[p.to.to_v], f[p.v]}});
        }
        on.attention(shape(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply_onto(on, all, f[p.mixed], f[p.to.to_out], f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        const linear_shape matrix = projection().matrix();
        const linear_shape of_keys = key_projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        const auto to_keys = [&](auto* gradient) {
            on.linear_backward_input(of_keys, key_rows(f.batch), f[p.dk], f[p.to.to_k], gradient, into::add);
            on.linear_backward_input(of_keys, key_rows(f.batch), f[p.dv], f[p.to.to_v], gradient, into::add);
        };
        on.linear_backward_input(matrix, all, f.output_gradient, f[p.to.to_out], f[p.inner], into::write);
        on.attention_backward(shape(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.inner], f[p.dq],
                              f[p.dk], f[p.dv]);
        if (reads_text() && f.context_gradient != nullptr) { to_keys(f.context_gradient); }
        on.linear_backward_input(matrix, all, f[p.dq], f[p.to.to_q], f[p.inner], into::write);
        if (!reads_text()) { to_keys(f[p.inner]); }
        norm_backward_onto(on, f.batch * states(), f.output_gradient, target, [&](auto... how) {
            on.layer_norm_backward(norm(), all, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                                   f.gradient(p.norm), f.bias_gradient(p.norm), how...);
        });
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        const linear_shape matrix = projection().matrix();
        if (reads_text()) {
            on.linear_backward_weight(matrix, all, f[p.normal], f[p.dq], f.gradient(p.to.to_q), nullptr);
            linear_batch_backward_weight(on, key_projection().matrix(), key_rows(f.batch), f.context,
                                         {{f.gradient(p.to.to_k), f[p.dk]}, {f.gradient(p.to.to_v), f[p.dv]}});
        } else {
            linear_batch_backward_weight(
                on, matrix, all, f[p.normal],
                {{f.gradient(p.to.to_q), f[p.dq]}, {f.gradient(p.to.to_k), f[p.dk]}, {f.gradient(p.to.to_v), f[p.dv]}});
        }
        projection().apply_backward_weight(on, all, f[p.mixed], f.output_gradient, f.gradient(p.to.to_out));
    }

private:
    [[nodiscard]] constexpr std::int64_t key_rows(int batch) const noexcept {
        return std::int64_t{batch} * shape().keys();
    }
};

/// The weights, under the attention's name.
struct token_attention::projections {
    token_attention of{};

    constexpr weights describe(description& d) const {
        const linear_shape matrix = of.projection().matrix();
        const linear_shape of_keys = of.key_projection().matrix();
        weights to{};
        if (of.joined) {
            // Rows of the queries, then of the keys and the values.
            to.to_q = d.linear("qkv", of.tokens, {of.width, 3 * of.width}, false);
            to.to_k.begin = to.to_q.begin + of.projection().weight_elements();
            to.to_v.begin = to.to_k.begin + of.projection().weight_elements();
            to.to_out = d.linear("proj", of.tokens, matrix);
            return to;
        }
        to.to_q = d.linear("to_q", of.tokens, matrix, false);
        to.to_k = d.linear("to_k", of.shape().keys(), of_keys, false);
        to.to_v = d.linear("to_v", of.shape().keys(), of_keys, false);
        to.to_out = d.linear("to_out.0", of.tokens, matrix);
        return to;
    }
};

constexpr token_attention::pieces token_attention::describe(description& d) const {
    pieces p{};
    if (reads_text()) { d.reads_context({context_tokens, context_features, 0}); }
    p.norm = d.norm(norm_name, width);
    p.to = d.part(name, projections{*this});
    d.attention(shape());
    d.save(states(), p.normal, p.mixed, p.q);
    d.save(std::int64_t{shape().keys()} * width, p.k, p.v);
    d.statistics(2 * std::int64_t{tokens}, p.statistics);
    d.statistics(std::int64_t{heads} * tokens, p.log_sums);
    d.defer(states(), p.dq);
    d.defer(std::int64_t{shape().keys()} * width, p.dk, p.dv);
    d.work(states(), p.inner, p.nobody);
    return p;
}

enum class activation : std::uint8_t {
    gelu,
    gelu_tanh,
    geglu, ///< values times the GELU of gates
};

/// y = x + narrowing(activation(widening(norm(x)))). backward_weight recomputes the activation's output.
struct token_feed_forward {
    int tokens{};
    int width{};
    int hidden{}; ///< features of the activation's output
    activation between{};
    std::string_view norm_name{};
    std::string_view widening_name{};
    std::string_view narrowing_name{};
    double epsilon{1e-5};

    [[nodiscard]] constexpr std::int64_t states() const noexcept { return std::int64_t{tokens} * width; }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {tokens, width, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }
    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, epsilon}; }
    [[nodiscard]] constexpr linear widening() const noexcept {
        return {width, between == activation::geglu ? 2 * hidden : hidden};
    }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {hidden, width}; }

    struct pieces {
        weight_piece norm, widening, narrowing;
        saved_piece normal, hidden; ///< hidden: the activation's input
        statistics_piece statistics;
        deferred_piece dhidden;
        workspace_piece active; ///< the activation's output, or its gradient
        workspace_piece inner;  ///< a gradient
        workspace_piece nobody; ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm(norm_name, width);
        p.widening = d.linear(widening_name, tokens, widening().matrix());
        p.narrowing = d.linear(narrowing_name, tokens, narrowing().matrix());
        d.save(states(), p.normal);
        d.save(std::int64_t{tokens} * widening().out_features, p.hidden);
        d.statistics(2 * std::int64_t{tokens}, p.statistics);
        d.defer(std::int64_t{tokens} * widening().out_features, p.dhidden);
        d.work(std::int64_t{tokens} * hidden, p.active);
        d.work_again();
        d.work(states(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        on.layer_norm(norm(), all, f.input, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        widening().apply(on, all, f[p.normal], f[p.widening], f[p.hidden]);
        activate(on, f, p);
        narrowing().apply_onto(on, all, f[p.active], f[p.narrowing], f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        const bool gated = between == activation::geglu;
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        auto* const dactive = gated ? f[p.active] : f[p.dhidden];
        on.linear_backward_input(narrowing().matrix(), all, f.output_gradient, f[p.narrowing], dactive, into::write);
        if (gated) {
            on.geglu_backward(all, hidden, f[p.hidden], dactive, f[p.dhidden]);
        } else if (between == activation::gelu) {
            on.gelu_backward(all * hidden, f[p.hidden], dactive, f[p.dhidden], into::write);
        } else {
            on.gelu_tanh_backward(all * hidden, f[p.hidden], dactive, f[p.dhidden], into::write);
        }
        on.linear_backward_input(widening().matrix(), all, f[p.dhidden], f[p.widening], f[p.inner], into::write);
        norm_backward_onto(on, f.batch * states(), f.output_gradient, target, [&](auto... how) {
            on.layer_norm_backward(norm(), all, f.input, f[p.norm], f[p.statistics], f[p.inner], target,
                                   f.gradient(p.norm), f.bias_gradient(p.norm), how...);
        });
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        widening().apply_backward_weight(on, all, f[p.normal], f[p.dhidden], f.gradient(p.widening));
        activate(on, f, p);
        narrowing().apply_backward_weight(on, all, f[p.active], f.output_gradient, f.gradient(p.narrowing));
    }

private:
    template <backend B>
    void activate(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens;
        switch (between) {
        case activation::gelu: return on.gelu(all * hidden, f[p.hidden], f[p.active]);
        case activation::gelu_tanh: return on.gelu_tanh(all * hidden, f[p.hidden], f[p.active]);
        case activation::geglu: return on.geglu(all, hidden, f[p.hidden], f[p.active]);
        }
    }
};

} // namespace pulse::nn
