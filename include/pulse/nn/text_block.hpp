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

/// One block of a transformer: x += attn1(norm1(x)); x += attn2(norm2(x), text); x += ff(norm3(x)), with a gated GELU
/// (GEGLU) of 4 x channels. Only the queries, keys and values have no bias.
///
/// It is a part of spatial_transformer, and a layer where a transformer is cut into layers, named
/// <transformer>.transformer_blocks.<i>. The product of the feed-forward is made again for its weight gradient.
struct transformer_block {
    text_attention core{};

    [[nodiscard]] constexpr flaw defect() const noexcept { return core.defect(); }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return core.shape(); }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return core.shape(); }

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

    struct pieces {
        weight_piece norm1, to_q1, to_k1, to_v1, to_out1;
        weight_piece to_q2, to_k2, to_v2, to_out2;
        weight_piece norm2, norm3, widening, narrowing;
        saved_piece normal1, q1, k1, v1, mixed1, middle1; ///< mixed: the heads' output; middle: between the parts
        saved_piece normal2, q2, mixed2, middle2, k2, v2;
        saved_piece normal3, hidden; ///< hidden: values and gates
        statistics_piece statistics1, statistics2, statistics3, log_sums1, log_sums2;
        deferred_piece dq1, dk1, dv1, dmiddle1, dq2, dmiddle2, dhidden, dk2, dv2;
        workspace_piece product; ///< of the feed-forward, or its gradient
        workspace_piece inner;   ///< a gradient
        workspace_piece nobody;  ///< the input's gradient where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        const std::int64_t tokens = core.tokens();
        const linear_shape matrix = core.projection().matrix();
        pieces p{};
        d.reads_context(core.context());
        p.norm1 = d.norm("norm1", core.channels);
        p.to_q1 = d.linear("attn1.to_q", tokens, matrix, false);
        p.to_k1 = d.linear("attn1.to_k", tokens, matrix, false);
        p.to_v1 = d.linear("attn1.to_v", tokens, matrix, false);
        p.to_out1 = d.linear("attn1.to_out.0", tokens, matrix);
        d.attention(self());
        p.to_q2 = d.linear("attn2.to_q", tokens, matrix, false);
        p.to_k2 = d.linear("attn2.to_k", core.context_tokens, text_projection(), false);
        p.to_v2 = d.linear("attn2.to_v", core.context_tokens, text_projection(), false);
        p.to_out2 = d.linear("attn2.to_out.0", tokens, matrix);
        d.attention(cross());
        p.norm2 = d.norm("norm2", core.channels);
        p.norm3 = d.norm("norm3", core.channels);
        p.widening = d.linear("ff.net.0.proj", tokens, widening().matrix());
        p.narrowing = d.linear("ff.net.2", tokens, narrowing().matrix());
        d.save(core.image(), p.normal1, p.q1, p.k1, p.v1, p.mixed1, p.middle1);
        d.save(core.image(), p.normal2, p.q2, p.mixed2, p.middle2, p.normal3);
        d.save(8 * core.image(), p.hidden);
        d.save(core.text(), p.k2, p.v2);
        d.statistics(2 * tokens, p.statistics1, p.statistics2, p.statistics3);
        d.statistics(core.heads * tokens, p.log_sums1, p.log_sums2);
        d.defer(core.image(), p.dq1, p.dk1, p.dv1, p.dmiddle1, p.dq2, p.dmiddle2);
        d.defer(8 * core.image(), p.dhidden);
        d.defer(core.text(), p.dk2, p.dv2);
        d.work(4 * core.image(), p.product);
        d.work_again();
        d.work(core.image(), p.inner, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t n = f.batch * core.image();
        const linear_shape matrix = core.projection().matrix();
        on.layer_norm(norm(), rows, f.input, f[p.norm1], f.bias(p.norm1), f[p.normal1], f[p.statistics1]);
        on.linear(matrix, rows, f[p.normal1], f[p.to_q1], nullptr, f[p.q1], into::write);
        on.linear(matrix, rows, f[p.normal1], f[p.to_k1], nullptr, f[p.k1], into::write);
        on.linear(matrix, rows, f[p.normal1], f[p.to_v1], nullptr, f[p.v1], into::write);
        on.attention(self(), f.batch, f[p.q1], f[p.k1], f[p.v1], f[p.mixed1], f[p.log_sums1]);
        core.projection().apply(on, rows, f[p.mixed1], f[p.to_out1], f[p.middle1]);
        on.add(n, f.input, f[p.middle1]);

        on.layer_norm(norm(), rows, f[p.middle1], f[p.norm2], f.bias(p.norm2), f[p.normal2], f[p.statistics2]);
        on.linear(matrix, rows, f[p.normal2], f[p.to_q2], nullptr, f[p.q2], into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, f[p.to_k2], nullptr, f[p.k2], into::write);
        on.linear(text_projection(), text_rows(f.batch), f.context, f[p.to_v2], nullptr, f[p.v2], into::write);
        on.attention(cross(), f.batch, f[p.q2], f[p.k2], f[p.v2], f[p.mixed2], f[p.log_sums2]);
        core.projection().apply(on, rows, f[p.mixed2], f[p.to_out2], f[p.middle2]);
        on.add(n, f[p.middle1], f[p.middle2]);

        on.layer_norm(norm(), rows, f[p.middle2], f[p.norm3], f.bias(p.norm3), f[p.normal3], f[p.statistics3]);
        widening().apply(on, rows, f[p.normal3], f[p.widening], f[p.hidden]);
        on.geglu(rows, 4 * core.channels, f[p.hidden], f[p.product]);
        narrowing().apply(on, rows, f[p.product], f[p.narrowing], f.output);
        on.add(n, f[p.middle2], f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t n = f.batch * core.image();
        const linear_shape matrix = core.projection().matrix();
        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];

        on.linear_backward_input(narrowing().matrix(), rows, f.output_gradient, f[p.narrowing], f[p.product],
                                 into::write);
        on.geglu_backward(rows, 4 * core.channels, f[p.hidden], f[p.product], f[p.dhidden]);
        on.linear_backward_input(widening().matrix(), rows, f[p.dhidden], f[p.widening], f[p.inner], into::write);
        on.copy(n, f.output_gradient, f[p.dmiddle2]);
        on.layer_norm_backward(norm(), rows, f[p.middle2], f[p.norm3], f[p.statistics3], f[p.inner], f[p.dmiddle2],
                               f.gradient(p.norm3), f.bias_gradient(p.norm3), into::add);

        on.linear_backward_input(matrix, rows, f[p.dmiddle2], f[p.to_out2], f[p.inner], into::write);
        on.attention_backward(cross(), f.batch, f[p.q2], f[p.k2], f[p.v2], f[p.mixed2], f[p.log_sums2], f[p.inner],
                              f[p.dq2], f[p.dk2], f[p.dv2]);
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection();
            on.linear_backward_input(from_text, text_rows(f.batch), f[p.dk2], f[p.to_k2], f.context_gradient,
                                     into::add);
            on.linear_backward_input(from_text, text_rows(f.batch), f[p.dv2], f[p.to_v2], f.context_gradient,
                                     into::add);
        }
        on.linear_backward_input(matrix, rows, f[p.dq2], f[p.to_q2], f[p.inner], into::write);
        on.copy(n, f[p.dmiddle2], f[p.dmiddle1]);
        on.layer_norm_backward(norm(), rows, f[p.middle1], f[p.norm2], f[p.statistics2], f[p.inner], f[p.dmiddle1],
                               f.gradient(p.norm2), f.bias_gradient(p.norm2), into::add);

        on.linear_backward_input(matrix, rows, f[p.dmiddle1], f[p.to_out1], f[p.inner], into::write);
        on.attention_backward(self(), f.batch, f[p.q1], f[p.k1], f[p.v1], f[p.mixed1], f[p.log_sums1], f[p.inner],
                              f[p.dq1], f[p.dk1], f[p.dv1]);
        on.linear_backward_input(matrix, rows, f[p.dq1], f[p.to_q1], f[p.inner], into::write);
        on.linear_backward_input(matrix, rows, f[p.dk1], f[p.to_k1], f[p.inner], into::add);
        on.linear_backward_input(matrix, rows, f[p.dv1], f[p.to_v1], f[p.inner], into::add);
        on.copy(n, f[p.dmiddle1], target);
        on.layer_norm_backward(norm(), rows, f.input, f[p.norm1], f[p.statistics1], f[p.inner], target,
                               f.gradient(p.norm1), f.bias_gradient(p.norm1), into::add);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = f.batch * core.tokens();
        const std::int64_t texts = text_rows(f.batch);
        const linear_shape matrix = core.projection().matrix();
        on.linear_backward_weight(matrix, rows, f[p.normal1], f[p.dq1], f.gradient(p.to_q1), nullptr);
        on.linear_backward_weight(matrix, rows, f[p.normal1], f[p.dk1], f.gradient(p.to_k1), nullptr);
        on.linear_backward_weight(matrix, rows, f[p.normal1], f[p.dv1], f.gradient(p.to_v1), nullptr);
        core.projection().apply_backward_weight(on, rows, f[p.mixed1], f[p.dmiddle1], f.gradient(p.to_out1));
        on.linear_backward_weight(matrix, rows, f[p.normal2], f[p.dq2], f.gradient(p.to_q2), nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, f[p.dk2], f.gradient(p.to_k2), nullptr);
        on.linear_backward_weight(text_projection(), texts, f.context, f[p.dv2], f.gradient(p.to_v2), nullptr);
        core.projection().apply_backward_weight(on, rows, f[p.mixed2], f[p.dmiddle2], f.gradient(p.to_out2));
        widening().apply_backward_weight(on, rows, f[p.normal3], f[p.dhidden], f.gradient(p.widening));
        on.geglu(rows, 4 * core.channels, f[p.hidden], f[p.product]);
        narrowing().apply_backward_weight(on, rows, f[p.product], f.output_gradient, f.gradient(p.narrowing));
    }

private:
    [[nodiscard]] constexpr std::int64_t text_rows(int batch) const noexcept {
        return std::int64_t{batch} * core.context_tokens;
    }
};

} // namespace pulse::nn
