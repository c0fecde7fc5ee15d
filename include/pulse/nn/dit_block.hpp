#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// One block of Hunyuan-DiT (diffusers' HunyuanDiTBlock): with a skip, x = skip_linear(skip_norm(concat(x, skip)))
/// first; then x += attn1(norm1(x) + shift(temb)); x += attn2(norm2(x), text); x += ff(norm3(x)), with GELU's tanh
/// form.
///
/// Queries and keys of both attentions are normed per head and, but for those of the text, rotated by their position.
/// The rotation is a constant that every device makes for itself. The conditioning is silu(temb), see
/// hunyuan_conditioning. Saves every normed tensor, queries and keys before and after their norms, values and what is
/// between the parts; GELU's output is made again for its weight gradient. Defers the gradients of every product's
/// output but the last.
struct dit_block {
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
    [[nodiscard]] constexpr std::int64_t hidden_states() const noexcept { return std::int64_t{tokens()} * hidden; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (rows <= 0 || columns <= 0 || width <= 0 || heads <= 0 || hidden <= 0 || context_tokens <= 0 ||
            context_features <= 0 || span <= 0.0) {
            return flaw::size;
        }
        return width % heads != 0 || width / heads % 4 != 0 ? flaw::heads : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return skip ? input() : extent{}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr extent context() const noexcept { return {context_tokens, context_features, 0}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return width; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        if (skip) {
            d.norm("skip_norm", 2 * width);
            d.linear("skip_linear", tokens(), 2 * width, width);
            d.keep(2 * states()); // input of skip_norm
            d.keep(2 * states()); // input of skip_linear
        }
        d.linear("norm1.linear", 1, width, width);
        d.keep(width); // SiLU(temb)
        d.norm("norm1.norm", width);
        describe_heads(d, "attn1.norm_q", "attn1.norm_k");
        d.linear("attn1.to_q", tokens(), width, width);
        d.linear("attn1.to_k", tokens(), width, width);
        d.linear("attn1.to_v", tokens(), width, width);
        d.linear("attn1.to_out.0", tokens(), width, width);
        d.attention(tokens(), tokens(), width);
        // inputs of norm1, of q, k and v, of norm_q and norm_k; what attends; the inputs of to_out and of norm2
        d.keep(9 * states());
        describe_heads(d, "attn2.norm_q", "attn2.norm_k");
        d.linear("attn2.to_q", tokens(), width, width);
        d.linear("attn2.to_k", context_tokens, context_features, width);
        d.linear("attn2.to_v", context_tokens, context_features, width);
        d.linear("attn2.to_out.0", tokens(), width, width);
        d.attention(tokens(), context_tokens, width);
        // inputs of to_q and of norm_q; what attends; the inputs of to_out and of norm3
        d.keep(5 * states());
        d.keep(3 * text()); // k before and after norm_k; v
        d.norm("norm2", width);
        d.norm("norm3", width);
        d.linear("ff.net.0.proj", tokens(), width, hidden);
        d.linear("ff.net.2", tokens(), hidden, width);
        // input of the feed-forward; both sides of the GELU
        d.keep(states());
        d.keep(hidden_states());
        d.keep(hidden_states());
    }

    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, 1e-6}; }
    [[nodiscard]] constexpr layer_norm_shape skip_norm() const noexcept { return {2 * width, 1e-6}; }
    [[nodiscard]] constexpr layer_norm_shape head_norm() const noexcept { return {width / heads, 1e-6}; }
    [[nodiscard]] constexpr adaptive_norm_shape norm1() const noexcept { return {width, tokens(), width, 1e-6}; }
    [[nodiscard]] constexpr rotary_shape turn() const noexcept { return {rows, columns, heads, width / heads, span}; }
    [[nodiscard]] constexpr attention_shape self() const noexcept { return {tokens(), heads, width / heads}; }
    [[nodiscard]] constexpr attention_shape cross() const noexcept {
        return {tokens(), heads, width / heads, context_tokens};
    }
    [[nodiscard]] constexpr linear joining() const noexcept { return {2 * width, width}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {width, width}; }
    [[nodiscard]] constexpr linear text_projection() const noexcept { return {context_features, width}; }
    [[nodiscard]] constexpr linear widening() const noexcept { return {width, hidden}; }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {hidden, width}; }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept {
        return (skip ? 17 : 14) * states() + hidden_states() + 3 * text();
    }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        const std::int64_t norms = (skip ? 8 : 6) * std::int64_t{tokens()};
        const std::int64_t of_heads = 2 * (3 * std::int64_t{tokens()} + context_tokens) * heads;
        return norms + of_heads + 2 * std::int64_t{tokens()} * heads;
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept {
        return (skip ? 7 : 6) * states() + hidden_states() + 2 * text() + width;
    }
    /// GELU's output, or its gradient; the gradients of what is normed per head; with a skip three concatenations.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept {
        const std::int64_t attending = 4 * states() + text();
        return std::max({hidden_states(), attending, (skip ? 6 : 0) * states()});
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved<B>(f);
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        const std::int64_t n = f.batch * states();
        if (skip) {
            join(on, f, f.workspace);
            on.layer_norm(skip_norm(), all, f.workspace, w.skip_norm, w.skip_norm + 2 * width, kept.skip_normal,
                          kept.skip_statistics);
            joining().apply(on, all, kept.skip_normal, w.joining, kept.joined);
        }
        const auto* const x = skip ? kept.joined : f.input;
        projection().apply(on, f.batch, f.conditioning, w.shift, f.workspace);
        on.adaptive_norm(norm1(), f.batch, x, w.norm1, w.norm1 + width, nullptr, f.workspace, kept.normal1,
                         kept.statistics1);
        projection().apply(on, all, kept.normal1, w.q1, kept.q1);
        projection().apply(on, all, kept.normal1, w.k1, kept.k1);
        projection().apply(on, all, kept.normal1, w.v1, kept.v1);
        norm_heads(on, all, kept.q1, w.norm_q1, kept.turned_q1, kept.statistics_q1);
        norm_heads(on, all, kept.k1, w.norm_k1, kept.turned_k1, kept.statistics_k1);
        on.rotary(turn(), f.batch, kept.turned_q1, kept.turned_q1);
        on.rotary(turn(), f.batch, kept.turned_k1, kept.turned_k1);
        on.attention(self(), f.batch, kept.turned_q1, kept.turned_k1, kept.v1, kept.mixed1, kept.log_sums1);
        projection().apply(on, all, kept.mixed1, w.out1, kept.middle1);
        on.add(n, x, kept.middle1);

        on.layer_norm(norm(), all, kept.middle1, w.norm2, w.norm2 + width, kept.normal2, kept.statistics2);
        projection().apply(on, all, kept.normal2, w.q2, kept.q2);
        text_projection().apply(on, texts, f.context, w.k2, kept.k2);
        text_projection().apply(on, texts, f.context, w.v2, kept.v2);
        norm_heads(on, all, kept.q2, w.norm_q2, kept.turned_q2, kept.statistics_q2);
        norm_heads(on, texts, kept.k2, w.norm_k2, kept.normal_k2, kept.statistics_k2);
        on.rotary(turn(), f.batch, kept.turned_q2, kept.turned_q2);
        on.attention(cross(), f.batch, kept.turned_q2, kept.normal_k2, kept.v2, kept.mixed2, kept.log_sums2);
        projection().apply(on, all, kept.mixed2, w.out2, kept.middle2);
        on.add(n, kept.middle1, kept.middle2);

        on.layer_norm(norm(), all, kept.middle2, w.norm3, w.norm3 + width, kept.normal3, kept.statistics3);
        widening().apply(on, all, kept.normal3, w.widening, kept.hidden);
        on.gelu_tanh(f.batch * hidden_states(), kept.hidden, f.workspace);
        narrowing().apply(on, all, f.workspace, w.narrowing, f.output);
        on.add(n, kept.middle2, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved<B>(f);
        const auto gradient = deferred(f.deferred, f.batch);
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        const std::int64_t n = f.batch * states();
        const linear_shape matrix = projection().matrix();
        slices<T> workspace{f.workspace, f.batch};
        T* const inner = workspace.take(states());
        T* const turned_q = workspace.take(states());
        T* const turned_k = workspace.take(states());
        T* const nobody = workspace.take(states());
        T* const normal_k = workspace.take(text());

        on.linear_backward_input(narrowing().matrix(), all, f.output_gradient, w.narrowing, gradient.hidden,
                                 into::write);
        on.gelu_tanh_backward(f.batch * hidden_states(), kept.hidden, gradient.hidden, gradient.hidden, into::write);
        on.linear_backward_input(widening().matrix(), all, gradient.hidden, w.widening, inner, into::write);
        on.copy(n, f.output_gradient, gradient.middle2);
        on.layer_norm_backward(norm(), all, kept.middle2, w.norm3, kept.statistics3, inner, gradient.middle2, dw.norm3,
                               dw.norm3 + width, into::add);

        on.linear_backward_input(matrix, all, gradient.middle2, w.out2, inner, into::write);
        on.attention_backward(cross(), f.batch, kept.turned_q2, kept.normal_k2, kept.v2, kept.mixed2, kept.log_sums2,
                              inner, turned_q, normal_k, gradient.v2);
        on.rotary_backward(turn(), f.batch, turned_q, turned_q);
        unnorm_heads(on, all, kept.q2, w.norm_q2, kept.statistics_q2, turned_q, gradient.q2, dw.norm_q2);
        unnorm_heads(on, texts, kept.k2, w.norm_k2, kept.statistics_k2, normal_k, gradient.k2, dw.norm_k2);
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection().matrix();
            on.linear_backward_input(from_text, texts, gradient.k2, w.k2, f.context_gradient, into::add);
            on.linear_backward_input(from_text, texts, gradient.v2, w.v2, f.context_gradient, into::add);
        }
        on.linear_backward_input(matrix, all, gradient.q2, w.q2, inner, into::write);
        on.copy(n, gradient.middle2, gradient.middle1);
        on.layer_norm_backward(norm(), all, kept.middle1, w.norm2, kept.statistics2, inner, gradient.middle1, dw.norm2,
                               dw.norm2 + width, into::add);

        on.linear_backward_input(matrix, all, gradient.middle1, w.out1, inner, into::write);
        on.attention_backward(self(), f.batch, kept.turned_q1, kept.turned_k1, kept.v1, kept.mixed1, kept.log_sums1,
                              inner, turned_q, turned_k, gradient.v1);
        on.rotary_backward(turn(), f.batch, turned_q, turned_q);
        on.rotary_backward(turn(), f.batch, turned_k, turned_k);
        unnorm_heads(on, all, kept.q1, w.norm_q1, kept.statistics_q1, turned_q, gradient.q1, dw.norm_q1);
        unnorm_heads(on, all, kept.k1, w.norm_k1, kept.statistics_k1, turned_k, gradient.k1, dw.norm_k1);
        on.linear_backward_input(matrix, all, gradient.q1, w.q1, inner, into::write);
        on.linear_backward_input(matrix, all, gradient.k1, w.k1, inner, into::add);
        on.linear_backward_input(matrix, all, gradient.v1, w.v1, inner, into::add);

        T* const target = f.input_gradient != nullptr ? f.input_gradient : nobody;
        T* const before = skip ? gradient.joined : target;
        on.copy(n, gradient.middle1, before);
        on.adaptive_norm_backward(norm1(), f.batch, skip ? kept.joined : f.input, w.norm1, w.norm1 + width, nullptr,
                                  kept.statistics1, inner, before, dw.norm1, dw.norm1 + width, nullptr, gradient.shift,
                                  into::add);
        on.linear_backward_input(matrix, f.batch, gradient.shift, w.shift, f.conditioning_gradient, into::add);
        if (skip) { part(on, f, w, dw, kept, before); }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved<B>(f);
        const auto gradient = deferred(f.deferred, f.batch);
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        if (skip) { joining().apply_backward_weight(on, all, kept.skip_normal, gradient.joined, dw.joining); }
        projection().apply_backward_weight(on, f.batch, f.conditioning, gradient.shift, dw.shift);
        projection().apply_backward_weight(on, all, kept.normal1, gradient.q1, dw.q1);
        projection().apply_backward_weight(on, all, kept.normal1, gradient.k1, dw.k1);
        projection().apply_backward_weight(on, all, kept.normal1, gradient.v1, dw.v1);
        projection().apply_backward_weight(on, all, kept.mixed1, gradient.middle1, dw.out1);
        projection().apply_backward_weight(on, all, kept.normal2, gradient.q2, dw.q2);
        text_projection().apply_backward_weight(on, texts, f.context, gradient.k2, dw.k2);
        text_projection().apply_backward_weight(on, texts, f.context, gradient.v2, dw.v2);
        projection().apply_backward_weight(on, all, kept.mixed2, gradient.middle2, dw.out2);
        widening().apply_backward_weight(on, all, kept.normal3, gradient.hidden, dw.widening);
        on.gelu_tanh(f.batch * hidden_states(), kept.hidden, f.workspace);
        narrowing().apply_backward_weight(on, all, f.workspace, f.output_gradient, dw.narrowing);
    }

private:
    template <class T>
    struct weight_pieces {
        T *skip_norm, *joining, *shift, *norm1;
        T *norm_q1, *norm_k1, *q1, *k1, *v1, *out1;
        T *norm_q2, *norm_k2, *q2, *k2, *v2, *out2;
        T *norm2, *norm3, *widening, *narrowing;
    };
    template <class T, class A>
    struct saved_pieces {
        T *skip_normal, *joined;
        T *normal1, *q1, *k1, *v1, *turned_q1, *turned_k1, *mixed1, *middle1;
        T *normal2, *q2, *turned_q2, *mixed2, *middle2, *normal3, *hidden;
        T *k2, *normal_k2, *v2;
        A *skip_statistics, *statistics1, *statistics2, *statistics3;
        A *statistics_q1, *statistics_k1, *statistics_q2, *statistics_k2;
        A *log_sums1, *log_sums2;
    };
    template <class T>
    struct deferred_pieces {
        T *joined, *q1, *k1, *v1, *middle1, *q2, *middle2, *hidden, *k2, *v2, *shift;
    };

    template <class Description>
    constexpr void describe_heads(Description& d, std::string_view query_norm, std::string_view key_norm) const {
        d.norm(query_norm, width / heads);
        d.norm(key_norm, width / heads);
    }

    /// y [tokens][2 * width]: each token of the input, then of the skip.
    template <backend B, class T, class A>
    void join(B& on, const layer_frame<T, A>& f, T* y) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        on.copy_rows(all, width, f.input, width, y, 2 * width);
        on.copy_rows(all, width, f.skip, width, y + width, 2 * width);
    }
    /// The gradients of input and skip from that of skip_linear's output.
    template <backend B, class Weights, class Gradients, class Kept>
    void part(B& on, const backend_frame<B>& f, const Weights& w, const Gradients& dw, const Kept& kept,
              const typename B::scalar* dy) const {
        using T = typename B::scalar;
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        slices<T> workspace{f.workspace, f.batch};
        T* const joined = workspace.take(2 * states());
        T* const normal_gradient = workspace.take(2 * states());
        T* const joined_gradient = workspace.take(2 * states());
        join(on, f, joined);
        on.linear_backward_input(joining().matrix(), all, dy, w.joining, normal_gradient, into::write);
        on.layer_norm_backward(skip_norm(), all, joined, w.skip_norm, kept.skip_statistics, normal_gradient,
                               joined_gradient, dw.skip_norm, dw.skip_norm + 2 * width, into::write);
        if (f.input_gradient != nullptr) {
            on.copy_rows(all, width, joined_gradient, 2 * width, f.input_gradient, width);
        }
        on.copy_rows(all, width, joined_gradient + width, 2 * width, f.skip_gradient, width);
    }
    /// Every head of every row on its own.
    template <backend B, class T, class A>
    void norm_heads(B& on, std::int64_t all, const T* x, const T* weight, T* y, A* statistics) const {
        on.layer_norm(head_norm(), all * heads, x, weight, weight + width / heads, y, statistics);
    }
    template <backend B, class T, class A>
    void unnorm_heads(B& on, std::int64_t all, const T* x, const T* weight, const A* statistics, const T* dy, T* dx,
                      A* dweight) const {
        on.layer_norm_backward(head_norm(), all * heads, x, weight, statistics, dy, dx, dweight,
                               dweight + width / heads, into::write);
    }

    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t c = width;
        const std::int64_t matrix = c * c + c;
        const std::int64_t from_text = c * context_features + c;
        const std::int64_t head = 2 * (c / heads);
        weight_pieces<T> w{};
        w.skip_norm = all.take(skip ? 4 * c : 0);
        w.joining = all.take(skip ? 2 * c * c + c : 0);
        w.shift = all.take(matrix);
        w.norm1 = all.take(2 * c);
        w.norm_q1 = all.take(head);
        w.norm_k1 = all.take(head);
        w.q1 = all.take(matrix);
        w.k1 = all.take(matrix);
        w.v1 = all.take(matrix);
        w.out1 = all.take(matrix);
        w.norm_q2 = all.take(head);
        w.norm_k2 = all.take(head);
        w.q2 = all.take(matrix);
        w.k2 = all.take(from_text);
        w.v2 = all.take(from_text);
        w.out2 = all.take(matrix);
        w.norm2 = all.take(2 * c);
        w.norm3 = all.take(2 * c);
        w.widening = all.take(c * hidden + hidden);
        w.narrowing = all.take(c * hidden + c);
        return w;
    }
    template <class B>
    [[nodiscard]] constexpr auto saved(const backend_frame<B>& f) const noexcept {
        using T = typename B::scalar;
        using A = typename B::accumulator;
        slices<T> all{f.saved, f.batch};
        slices<A> exact{f.statistics, f.batch};
        saved_pieces<T, A> kept{};
        kept.skip_normal = all.take(skip ? 2 * states() : 0);
        kept.joined = all.take(skip ? states() : 0);
        for (T** piece :
             {&kept.normal1, &kept.q1, &kept.k1, &kept.v1, &kept.turned_q1, &kept.turned_k1, &kept.mixed1,
              &kept.middle1, &kept.normal2, &kept.q2, &kept.turned_q2, &kept.mixed2, &kept.middle2, &kept.normal3}) {
            *piece = all.take(states());
        }
        kept.hidden = all.take(hidden_states());
        for (T** piece : {&kept.k2, &kept.normal_k2, &kept.v2}) { *piece = all.take(text()); }
        const std::int64_t t = tokens();
        kept.skip_statistics = exact.take(skip ? 2 * t : 0);
        for (A** piece : {&kept.statistics1, &kept.statistics2, &kept.statistics3}) { *piece = exact.take(2 * t); }
        for (A** piece : {&kept.statistics_q1, &kept.statistics_k1, &kept.statistics_q2}) {
            *piece = exact.take(2 * t * heads);
        }
        kept.statistics_k2 = exact.take(2 * std::int64_t{context_tokens} * heads);
        kept.log_sums1 = exact.take(t * heads);
        kept.log_sums2 = exact.take(t * heads);
        return kept;
    }
    template <class T>
    [[nodiscard]] constexpr deferred_pieces<T> deferred(T* begin, int batch) const noexcept {
        slices<T> all{begin, batch};
        deferred_pieces<T> left{};
        left.joined = all.take(skip ? states() : 0);
        for (T** piece : {&left.q1, &left.k1, &left.v1, &left.middle1, &left.q2, &left.middle2}) {
            *piece = all.take(states());
        }
        left.hidden = all.take(hidden_states());
        left.k2 = all.take(text());
        left.v2 = all.take(text());
        left.shift = all.take(width);
        return left;
    }
};

} // namespace pulse::nn
