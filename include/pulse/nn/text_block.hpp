#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
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
    [[nodiscard]] constexpr extent shape() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr extent context() const noexcept { return {context_tokens, context_features, 0}; }
    [[nodiscard]] constexpr group_norm_shape norm() const noexcept {
        return {channels, 0, groups, height * width, 1e-6, false};
    }
    [[nodiscard]] constexpr linear projection() const noexcept { return {channels, channels}; }
    [[nodiscard]] constexpr std::int64_t projection_elements() const noexcept {
        return projection().weight_elements() + channels;
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || heads <= 0 || context_tokens <= 0 || context_features <= 0 ||
            groups <= 0) {
            return flaw::size;
        }
        if (channels % groups != 0) { return flaw::groups; }
        return channels % heads != 0 ? flaw::heads : flaw::none;
    }

    /// One block: x += attn1(norm1(x)); x += attn2(norm2(x), text); x += ff(norm3(x)), with a gated GELU (GEGLU) of
    /// 4 x channels. Only the queries, keys and values have no bias.
    template <class Description>
    constexpr void describe_block(Description& d) const {
        const int c = channels;
        d.norm("norm1", c);
        d.linear("attn1.to_q", tokens(), c, c, false);
        d.linear("attn1.to_k", tokens(), c, c, false);
        d.linear("attn1.to_v", tokens(), c, c, false);
        d.linear("attn1.to_out.0", tokens(), c, c);
        d.attention(tokens(), tokens(), c);
        d.linear("attn2.to_q", tokens(), c, c, false);
        d.linear("attn2.to_k", context_tokens, context_features, c, false);
        d.linear("attn2.to_v", context_tokens, context_features, c, false);
        d.linear("attn2.to_out.0", tokens(), c, c);
        d.attention(tokens(), context_tokens, c);
        d.norm("norm2", c);
        d.norm("norm3", c);
        d.linear("ff.net.0.proj", tokens(), c, 8 * c);
        d.linear("ff.net.2", tokens(), 4 * c, c);
        // inputs of three norms and of what follows them; q, k, v and the output of attn1; q and the output of attn2
        d.keep(12 * image());
        d.keep(2 * std::int64_t{context_tokens} * c);
        // value and gate; gelu(gate); their product
        d.keep(8 * image());
        d.keep(4 * image());
        d.keep(4 * image());
    }
    template <class Description>
    constexpr void describe_in(Description& d, bool linear_projection) const {
        d.norm("norm", channels);
        describe_projection(d, "proj_in", linear_projection);
        d.keep(image()); // input of the norm
        d.keep(image()); // input of the projection
    }
    template <class Description>
    constexpr void describe_out(Description& d, bool linear_projection) const {
        describe_projection(d, "proj_out", linear_projection);
        d.keep(image());
    }

private:
    template <class Description>
    constexpr void describe_projection(Description& d, std::string_view name, bool linear) const {
        if (linear) {
            d.linear(name, tokens(), channels, channels);
        } else {
            d.conv(name, tokens(), channels, channels, 1);
        }
    }
};

/// One block of a transformer: a part of spatial_transformer, and a layer where a transformer is cut into layers, named
/// <transformer>.transformer_blocks.<i>.
///
/// Saves the three normed tensors, q, k and v of both attentions with the heads' outputs, what is between the parts,
/// and values and gates of the feed-forward, whose product is made again for its weight gradient. Defers the gradients
/// of every product's output but the last.
struct transformer_block {
    text_attention core{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr extent input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent residual_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr extent context() const noexcept { return core.context(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }

    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        core.describe_block(d);
    }

    [[nodiscard]] constexpr layer_norm_shape norm() const noexcept { return {core.channels, 1e-5}; }
    [[nodiscard]] constexpr attention_shape self() const noexcept {
        return {core.height * core.width, core.heads, core.channels / core.heads};
    }
    [[nodiscard]] constexpr attention_shape cross() const noexcept {
        return {core.height * core.width, core.heads, core.channels / core.heads, core.context_tokens};
    }
    [[nodiscard]] constexpr linear_shape text_projection() const noexcept {
        return {core.context_features, core.channels};
    }
    [[nodiscard]] constexpr linear widening() const noexcept { return {core.channels, 8 * core.channels}; }
    [[nodiscard]] constexpr linear narrowing() const noexcept { return {4 * core.channels, core.channels}; }

    [[nodiscard]] constexpr std::int64_t parameter_elements() const noexcept {
        const std::int64_t c = core.channels;
        return 18 * c * c + 17 * c + 2 * c * core.context_features;
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 19 * core.image() + 2 * core.text(); }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return (6 + 2 * std::int64_t{core.heads}) * core.tokens();
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept {
        return 14 * core.image() + 2 * core.text();
    }
    /// The feed-forward's product, or its gradient; later a gradient and a place for the input's where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 4 * core.image(); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved<B>(f);
        const int c = core.channels;
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t n = f.batch * core.image();
        const linear_shape matrix = core.projection().matrix();
        on.layer_norm(norm(), rows, f.input, w.norm1, w.norm1 + c, kept.normal1, kept.statistics1);
        on.linear(matrix, rows, kept.normal1, w.q1, nullptr, kept.q1, into::write);
        on.linear(matrix, rows, kept.normal1, w.k1, nullptr, kept.k1, into::write);
        on.linear(matrix, rows, kept.normal1, w.v1, nullptr, kept.v1, into::write);
        on.attention(self(), f.batch, kept.q1, kept.k1, kept.v1, kept.mixed1, kept.log_sums1);
        core.projection().apply(on, rows, kept.mixed1, w.out1, kept.middle1);
        on.add(n, f.input, kept.middle1);

        on.layer_norm(norm(), rows, kept.middle1, w.norm2, w.norm2 + c, kept.normal2, kept.statistics2);
        on.linear(matrix, rows, kept.normal2, w.q2, nullptr, kept.q2, into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, w.k2, nullptr, kept.k2, into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, w.v2, nullptr, kept.v2, into::write);
        on.attention(cross(), f.batch, kept.q2, kept.k2, kept.v2, kept.mixed2, kept.log_sums2);
        core.projection().apply(on, rows, kept.mixed2, w.out2, kept.middle2);
        on.add(n, kept.middle1, kept.middle2);

        on.layer_norm(norm(), rows, kept.middle2, w.norm3, w.norm3 + c, kept.normal3, kept.statistics3);
        widening().apply(on, rows, kept.normal3, w.widening, kept.hidden);
        on.geglu(rows, 4 * c, kept.hidden, f.workspace);
        narrowing().apply(on, rows, f.workspace, w.narrowing, f.output);
        on.add(n, kept.middle2, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved<B>(f);
        const auto gradient = deferred(f.deferred, f.batch);
        const int c = core.channels;
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t n = f.batch * core.image();
        const linear_shape matrix = core.projection().matrix();
        T* const product = f.workspace;
        T* const inner = f.workspace;
        T* const target = f.input_gradient != nullptr ? f.input_gradient : f.workspace + n;

        on.linear_backward_input(narrowing().matrix(), rows, f.output_gradient, w.narrowing, product, into::write);
        on.geglu_backward(rows, 4 * c, kept.hidden, product, gradient.hidden);
        on.linear_backward_input(widening().matrix(), rows, gradient.hidden, w.widening, inner, into::write);
        on.copy(n, f.output_gradient, gradient.middle2);
        on.layer_norm_backward(norm(), rows, kept.middle2, w.norm3, kept.statistics3, inner, gradient.middle2, dw.norm3,
                               dw.norm3 + c, into::add);

        on.linear_backward_input(matrix, rows, gradient.middle2, w.out2, inner, into::write);
        on.attention_backward(cross(), f.batch, kept.q2, kept.k2, kept.v2, kept.mixed2, kept.log_sums2, inner,
                              gradient.q2, gradient.k2, gradient.v2);
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection();
            on.linear_backward_input(from_text, text_rows(f.batch), gradient.k2, w.k2, f.context_gradient, into::add);
            on.linear_backward_input(from_text, text_rows(f.batch), gradient.v2, w.v2, f.context_gradient, into::add);
        }
        on.linear_backward_input(matrix, rows, gradient.q2, w.q2, inner, into::write);
        on.copy(n, gradient.middle2, gradient.middle1);
        on.layer_norm_backward(norm(), rows, kept.middle1, w.norm2, kept.statistics2, inner, gradient.middle1, dw.norm2,
                               dw.norm2 + c, into::add);

        on.linear_backward_input(matrix, rows, gradient.middle1, w.out1, inner, into::write);
        on.attention_backward(self(), f.batch, kept.q1, kept.k1, kept.v1, kept.mixed1, kept.log_sums1, inner,
                              gradient.q1, gradient.k1, gradient.v1);
        on.linear_backward_input(matrix, rows, gradient.q1, w.q1, inner, into::write);
        on.linear_backward_input(matrix, rows, gradient.k1, w.k1, inner, into::add);
        on.linear_backward_input(matrix, rows, gradient.v1, w.v1, inner, into::add);
        on.copy(n, gradient.middle1, target);
        on.layer_norm_backward(norm(), rows, f.input, w.norm1, kept.statistics1, inner, target, dw.norm1, dw.norm1 + c,
                               into::add);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved<B>(f);
        const auto gradient = deferred(f.deferred, f.batch);
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t texts = text_rows(f.batch);
        const linear_shape matrix = core.projection().matrix();
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.q1, dw.q1, nullptr);
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.k1, dw.k1, nullptr);
        on.linear_backward_weight(matrix, rows, kept.normal1, gradient.v1, dw.v1, nullptr);
        core.projection().apply_backward_weight(on, rows, kept.mixed1, gradient.middle1, dw.out1);
        on.linear_backward_weight(matrix, rows, kept.normal2, gradient.q2, dw.q2, nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, gradient.k2, dw.k2, nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, gradient.v2, dw.v2, nullptr);
        core.projection().apply_backward_weight(on, rows, kept.mixed2, gradient.middle2, dw.out2);
        widening().apply_backward_weight(on, rows, kept.normal3, gradient.hidden, dw.widening);
        on.geglu(rows, 4 * core.channels, kept.hidden, f.workspace);
        narrowing().apply_backward_weight(on, rows, f.workspace, f.output_gradient, dw.narrowing);
    }

private:
    template <class T>
    struct weight_pieces {
        T* norm1;
        T* q1;
        T* k1;
        T* v1;
        T* out1;
        T* q2;
        T* k2;
        T* v2;
        T* out2;
        T* norm2;
        T* norm3;
        T* widening;
        T* narrowing;
    };
    template <class T, class A>
    struct saved_pieces {
        T* normal1;
        T* q1;
        T* k1;
        T* v1;
        T* mixed1;
        T* middle1;
        T* normal2;
        T* q2;
        T* mixed2;
        T* middle2;
        T* normal3;
        T* hidden;
        T* k2;
        T* v2;
        A* statistics1;
        A* statistics2;
        A* statistics3;
        A* log_sums1;
        A* log_sums2;
    };
    template <class T>
    struct deferred_pieces {
        T* q1;
        T* k1;
        T* v1;
        T* middle1;
        T* q2;
        T* middle2;
        T* hidden;
        T* k2;
        T* v2;
    };

    [[nodiscard]] constexpr std::int64_t text_rows(int batch) const noexcept {
        return std::int64_t{batch} * core.context_tokens;
    }
    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t c = core.channels;
        const std::int64_t from_text = c * core.context_features;
        return {.norm1 = all.take(2 * c),
                .q1 = all.take(c * c),
                .k1 = all.take(c * c),
                .v1 = all.take(c * c),
                .out1 = all.take(c * c + c),
                .q2 = all.take(c * c),
                .k2 = all.take(from_text),
                .v2 = all.take(from_text),
                .out2 = all.take(c * c + c),
                .norm2 = all.take(2 * c),
                .norm3 = all.take(2 * c),
                .widening = all.take(8 * c * c + 8 * c),
                .narrowing = all.take(4 * c * c + c)};
    }
    template <class B>
    [[nodiscard]] constexpr auto saved(const backend_frame<B>& f) const noexcept {
        using T = typename B::scalar;
        using A = typename B::accumulator;
        slices<T> all{f.saved, f.batch};
        slices<A> exact{f.statistics, f.batch};
        const std::int64_t image = core.image();
        const std::int64_t rows = core.tokens();
        return saved_pieces<T, A>{.normal1 = all.take(image),
                                  .q1 = all.take(image),
                                  .k1 = all.take(image),
                                  .v1 = all.take(image),
                                  .mixed1 = all.take(image),
                                  .middle1 = all.take(image),
                                  .normal2 = all.take(image),
                                  .q2 = all.take(image),
                                  .mixed2 = all.take(image),
                                  .middle2 = all.take(image),
                                  .normal3 = all.take(image),
                                  .hidden = all.take(8 * image),
                                  .k2 = all.take(core.text()),
                                  .v2 = all.take(core.text()),
                                  .statistics1 = exact.take(2 * rows),
                                  .statistics2 = exact.take(2 * rows),
                                  .statistics3 = exact.take(2 * rows),
                                  .log_sums1 = exact.take(core.heads * rows),
                                  .log_sums2 = exact.take(core.heads * rows)};
    }
    template <class T>
    [[nodiscard]] constexpr deferred_pieces<T> deferred(T* begin, int batch) const noexcept {
        slices<T> all{begin, batch};
        const std::int64_t image = core.image();
        return {.q1 = all.take(image),
                .k1 = all.take(image),
                .v1 = all.take(image),
                .middle1 = all.take(image),
                .q2 = all.take(image),
                .middle2 = all.take(image),
                .hidden = all.take(8 * image),
                .k2 = all.take(core.text()),
                .v2 = all.take(core.text())};
    }
};

} // namespace pulse::nn
