#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/convolution.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// One block of U-ViT: with a skip, x = skip_linear(concat(x, skip)) first; then x += attn(norm1(x)); x +=
/// mlp(norm2(x)). Queries, keys and values are one projection without bias; the hidden width is 4 x width. The
/// concatenation is never made: skip_linear reads both. Saves skip_linear's output, both normed tensors, q,
/// k, v, the heads' output, what is between attention and feed-forward, and the GELU's input; keeps the statistics of
/// both norms and the logarithms of sums; the GELU's output is made again for the weight gradient. Defers the gradients
/// of every product's output but the last.
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

    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {width, 1e-5}; }
    [[nodiscard]] constexpr attention_shape core() const noexcept { return {tokens, heads, width / heads}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {width, width}; }
    [[nodiscard]] constexpr linear widening() const noexcept { return {width, 4 * width}; }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {4 * width, width}; }
    /// skip_linear: a convolution of one pixel reads two sources.
    [[nodiscard]] constexpr conv joining() const noexcept {
        return {.in_channels = width,
                .skip_channels = width,
                .out_channels = width,
                .height = tokens,
                .width = 1,
                .kernel = 1,
                .pad_before = 0,
                .pad_after = 0};
    }

    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return (skip ? 12 : 11) * states(); }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return (4 + std::int64_t{heads}) * tokens;
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return (skip ? 9 : 8) * states(); }
    /// The GELU's output; backward, a gradient and a place for the input's where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 4 * states(); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens;
        const std::int64_t n = f.batch * states();
        if (skip) { joining().apply(on, f.batch, f.input, f.skip, w.skip, kept.joined, into::write); }
        const auto* const x = skip ? kept.joined : f.input;
        on.layer_norm(norm(), rows, x, w.norm1, w.norm1 + width, kept.normal1, kept.statistics1);
        on.linear(projection().matrix(), rows, kept.normal1, w.q, nullptr, kept.q, into::write);
        on.linear(projection().matrix(), rows, kept.normal1, w.k, nullptr, kept.k, into::write);
        on.linear(projection().matrix(), rows, kept.normal1, w.v, nullptr, kept.v, into::write);
        on.attention(core(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums);
        projection().apply(on, rows, kept.mixed, w.projection, kept.middle);
        on.add(n, x, kept.middle);
        on.layer_norm(norm(), rows, kept.middle, w.norm2, w.norm2 + width, kept.normal2, kept.statistics2);
        widening().apply(on, rows, kept.normal2, w.widening, kept.hidden);
        on.gelu(4 * n, kept.hidden, f.workspace);
        narrowing().apply(on, rows, f.workspace, w.narrowing, f.output);
        on.add(n, kept.middle, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        const auto gradient = deferred(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens;
        const std::int64_t n = f.batch * states();
        slices<T> workspace{f.workspace, f.batch};
        T* const inner = workspace.take(states());
        T* const nobody = workspace.take(states());
        T* const target = f.input_gradient != nullptr ? f.input_gradient : nobody;

        on.linear_backward_input(narrowing().matrix(), rows, f.output_gradient, w.narrowing, gradient.hidden,
                                 into::write);
        on.gelu_backward(4 * n, kept.hidden, gradient.hidden, gradient.hidden, into::write);
        on.linear_backward_input(widening().matrix(), rows, gradient.hidden, w.widening, inner, into::write);
        on.copy(n, f.output_gradient, gradient.middle);
        on.layer_norm_backward(norm(), rows, kept.middle, w.norm2, kept.statistics2, inner, gradient.middle, dw.norm2,
                               dw.norm2 + width, into::add);

        const linear_shape matrix = projection().matrix();
        on.linear_backward_input(matrix, rows, gradient.middle, w.projection, inner, into::write);
        on.attention_backward(core(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums, inner, gradient.q,
                              gradient.k, gradient.v);
        on.linear_backward_input(matrix, rows, gradient.q, w.q, inner, into::write);
        on.linear_backward_input(matrix, rows, gradient.k, w.k, inner, into::add);
        on.linear_backward_input(matrix, rows, gradient.v, w.v, inner, into::add);
        T* const before = skip ? gradient.joined : target;
        on.copy(n, gradient.middle, before);
        on.layer_norm_backward(norm(), rows, skip ? kept.joined : f.input, w.norm1, kept.statistics1, inner, before,
                               dw.norm1, dw.norm1 + width, into::add);
        if (skip) {
            on.conv2d_pair_backward_input(joining().window(), width, f.batch, before, w.skip, target, f.skip_gradient,
                                          into::write);
        }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        const auto gradient = deferred(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens;
        const linear_shape matrix = projection().matrix();
        if (skip) { joining().apply_backward_weight(on, f.batch, f.input, f.skip, gradient.joined, dw.skip); }
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.q, dw.q, nullptr);
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.k, dw.k, nullptr);
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.v, dw.v, nullptr);
        projection().apply_backward_weight(on, rows, kept.mixed, gradient.middle, dw.projection);
        widening().apply_backward_weight(on, rows, kept.normal2, gradient.hidden, dw.widening);
        on.gelu(4 * f.batch * states(), kept.hidden, f.workspace);
        narrowing().apply_backward_weight(on, rows, f.workspace, f.output_gradient, dw.narrowing);
    }

private:
    template <class T>
    struct weight_pieces {
        T* skip;
        T* norm1;
        T* q; ///< attn.qkv: rows of the queries, then k and v
        T* k;
        T* v;
        T* projection;
        T* norm2;
        T* widening;
        T* narrowing;
    };
    template <class T, class A>
    struct saved_pieces {
        T* joined;
        T* normal1;
        T* q;
        T* k;
        T* v;
        T* mixed;
        T* middle;
        T* normal2;
        T* hidden;
        A* log_sums;
        A* statistics1;
        A* statistics2;
    };
    template <class T>
    struct deferred_pieces {
        T* joined;
        T* q;
        T* k;
        T* v;
        T* middle;
        T* hidden;
    };

    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t w = width;
        return {.skip = all.take(skip ? 2 * w * w + w : 0),
                .norm1 = all.take(2 * w),
                .q = all.take(w * w),
                .k = all.take(w * w),
                .v = all.take(w * w),
                .projection = all.take(w * w + w),
                .norm2 = all.take(2 * w),
                .widening = all.take(4 * w * w + 4 * w),
                .narrowing = all.take(4 * w * w + w)};
    }
    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T, A> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        slices<A> precise{f.statistics, f.batch};
        const std::int64_t s = states();
        return {.joined = all.take(skip ? s : 0),
                .normal1 = all.take(s),
                .q = all.take(s),
                .k = all.take(s),
                .v = all.take(s),
                .mixed = all.take(s),
                .middle = all.take(s),
                .normal2 = all.take(s),
                .hidden = all.take(4 * s),
                .log_sums = precise.take(std::int64_t{heads} * tokens),
                .statistics1 = precise.take(2 * std::int64_t{tokens}),
                .statistics2 = precise.take(2 * std::int64_t{tokens})};
    }
    template <class T, class A>
    [[nodiscard]] constexpr deferred_pieces<T> deferred(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.deferred, f.batch};
        const std::int64_t s = states();
        return {.joined = all.take(skip ? s : 0),
                .q = all.take(s),
                .k = all.take(s),
                .v = all.take(s),
                .middle = all.take(s),
                .hidden = all.take(4 * s)};
    }
};

} // namespace pulse::nn
