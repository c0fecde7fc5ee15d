#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
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
/// hunyuan_conditioning. GELU's output is made again for its weight gradient.
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
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {tokens(), width, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }

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

    struct pieces {
        weight_piece skip_norm, joining, to_shift, norm1;
        weight_piece norm_q1, norm_k1, to_q1, to_k1, to_v1, to_out1;
        weight_piece norm_q2, norm_k2, to_q2, to_k2, to_v2, to_out2;
        weight_piece norm2, norm3, widening, narrowing;
        saved_piece skip_normal, joined;
        saved_piece normal1, q1, k1, v1, turned_q1, turned_k1, mixed1, middle1; ///< turned: normed and rotated
        saved_piece normal2, q2, turned_q2, mixed2, middle2, k2, normal_k2, v2;
        saved_piece normal3, hidden;
        statistics_piece skip_statistics, statistics1, statistics2, statistics3;
        statistics_piece statistics_q1, statistics_k1, statistics_q2, statistics_k2, log_sums1, log_sums2;
        deferred_piece djoined, dq1, dk1, dv1, dmiddle1, dq2, dmiddle2, dhidden, dk2, dv2, dshift;
        workspace_piece concatenation, dskip_normal, dconcatenation;
        workspace_piece shift;
        workspace_piece active;                                         ///< the GELU's output
        workspace_piece inner, dturned_q, dturned_k, nobody, dnormal_k; ///< nobody: the input's, where nobody reads it
    };
    constexpr pieces describe(description& d) const {
        const linear_shape matrix = projection().matrix();
        const std::int64_t rows_of_heads = std::int64_t{tokens()} * heads;
        pieces p{};
        d.reads_conditioning(width);
        d.reads_context({context_tokens, context_features, 0});
        if (skip) {
            d.reads_skip(input());
            p.skip_norm = d.norm("skip_norm", 2 * width);
            p.joining = d.linear("skip_linear", tokens(), joining().matrix());
            d.save(2 * states(), p.skip_normal);
            d.save(states(), p.joined);
            d.statistics(2 * std::int64_t{tokens()}, p.skip_statistics);
            d.defer(states(), p.djoined);
            d.work(2 * states(), p.concatenation, p.dskip_normal, p.dconcatenation);
            d.work_again();
        }
        p.to_shift = d.linear("norm1.linear", 1, matrix);
        p.norm1 = d.norm("norm1.norm", width);
        p.norm_q1 = d.norm("attn1.norm_q", width / heads);
        p.norm_k1 = d.norm("attn1.norm_k", width / heads);
        p.to_q1 = d.linear("attn1.to_q", tokens(), matrix);
        p.to_k1 = d.linear("attn1.to_k", tokens(), matrix);
        p.to_v1 = d.linear("attn1.to_v", tokens(), matrix);
        p.to_out1 = d.linear("attn1.to_out.0", tokens(), matrix);
        d.attention(self());
        p.norm_q2 = d.norm("attn2.norm_q", width / heads);
        p.norm_k2 = d.norm("attn2.norm_k", width / heads);
        p.to_q2 = d.linear("attn2.to_q", tokens(), matrix);
        p.to_k2 = d.linear("attn2.to_k", context_tokens, text_projection().matrix());
        p.to_v2 = d.linear("attn2.to_v", context_tokens, text_projection().matrix());
        p.to_out2 = d.linear("attn2.to_out.0", tokens(), matrix);
        d.attention(cross());
        p.norm2 = d.norm("norm2", width);
        p.norm3 = d.norm("norm3", width);
        p.widening = d.linear("ff.net.0.proj", tokens(), widening().matrix());
        p.narrowing = d.linear("ff.net.2", tokens(), narrowing().matrix());
        d.save(states(), p.normal1, p.q1, p.k1, p.v1, p.turned_q1, p.turned_k1, p.mixed1, p.middle1);
        d.save(states(), p.normal2, p.q2, p.turned_q2, p.mixed2, p.middle2, p.normal3);
        d.save(hidden_states(), p.hidden);
        d.save(text(), p.k2, p.normal_k2, p.v2);
        d.statistics(2 * std::int64_t{tokens()}, p.statistics1, p.statistics2, p.statistics3);
        d.statistics(2 * rows_of_heads, p.statistics_q1, p.statistics_k1, p.statistics_q2);
        d.statistics(2 * std::int64_t{context_tokens} * heads, p.statistics_k2);
        d.statistics(rows_of_heads, p.log_sums1, p.log_sums2);
        d.defer(states(), p.dq1, p.dk1, p.dv1, p.dmiddle1, p.dq2, p.dmiddle2);
        d.defer(hidden_states(), p.dhidden);
        d.defer(text(), p.dk2, p.dv2);
        d.defer(width, p.dshift);
        d.work(width, p.shift);
        d.work_again();
        d.work(hidden_states(), p.active);
        d.work_again();
        d.work(states(), p.inner, p.dturned_q, p.dturned_k, p.nobody);
        d.work(text(), p.dnormal_k);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        const std::int64_t n = f.batch * states();
        if (skip) {
            join(on, f, f[p.concatenation]);
            on.layer_norm(skip_norm(), all, f[p.concatenation], f[p.skip_norm], f.bias(p.skip_norm), f[p.skip_normal],
                          f[p.skip_statistics]);
            joining().apply(on, all, f[p.skip_normal], f[p.joining], f[p.joined]);
        }
        const auto* const x = skip ? f[p.joined] : f.input;
        projection().apply(on, f.batch, f.conditioning, f[p.to_shift], f[p.shift]);
        on.adaptive_norm(norm1(), f.batch, x, f[p.norm1], f.bias(p.norm1), nullptr, f[p.shift], f[p.normal1],
                         f[p.statistics1]);
        projection().apply(on, all, f[p.normal1], f[p.to_q1], f[p.q1]);
        projection().apply(on, all, f[p.normal1], f[p.to_k1], f[p.k1]);
        projection().apply(on, all, f[p.normal1], f[p.to_v1], f[p.v1]);
        norm_heads(on, all, f[p.q1], f[p.norm_q1], f[p.turned_q1], f[p.statistics_q1]);
        norm_heads(on, all, f[p.k1], f[p.norm_k1], f[p.turned_k1], f[p.statistics_k1]);
        on.rotary(turn(), f.batch, f[p.turned_q1], f[p.turned_q1]);
        on.rotary(turn(), f.batch, f[p.turned_k1], f[p.turned_k1]);
        on.attention(self(), f.batch, f[p.turned_q1], f[p.turned_k1], f[p.v1], f[p.mixed1], f[p.log_sums1]);
        projection().apply(on, all, f[p.mixed1], f[p.to_out1], f[p.middle1]);
        on.add(n, x, f[p.middle1]);

        on.layer_norm(norm(), all, f[p.middle1], f[p.norm2], f.bias(p.norm2), f[p.normal2], f[p.statistics2]);
        projection().apply(on, all, f[p.normal2], f[p.to_q2], f[p.q2]);
        text_projection().apply(on, texts, f.context, f[p.to_k2], f[p.k2]);
        text_projection().apply(on, texts, f.context, f[p.to_v2], f[p.v2]);
        norm_heads(on, all, f[p.q2], f[p.norm_q2], f[p.turned_q2], f[p.statistics_q2]);
        norm_heads(on, texts, f[p.k2], f[p.norm_k2], f[p.normal_k2], f[p.statistics_k2]);
        on.rotary(turn(), f.batch, f[p.turned_q2], f[p.turned_q2]);
        on.attention(cross(), f.batch, f[p.turned_q2], f[p.normal_k2], f[p.v2], f[p.mixed2], f[p.log_sums2]);
        projection().apply(on, all, f[p.mixed2], f[p.to_out2], f[p.middle2]);
        on.add(n, f[p.middle1], f[p.middle2]);

        on.layer_norm(norm(), all, f[p.middle2], f[p.norm3], f.bias(p.norm3), f[p.normal3], f[p.statistics3]);
        widening().apply(on, all, f[p.normal3], f[p.widening], f[p.hidden]);
        on.gelu_tanh(f.batch * hidden_states(), f[p.hidden], f[p.active]);
        narrowing().apply(on, all, f[p.active], f[p.narrowing], f.output);
        on.add(n, f[p.middle2], f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        const std::int64_t n = f.batch * states();
        const linear_shape matrix = projection().matrix();
        on.linear_backward_input(narrowing().matrix(), all, f.output_gradient, f[p.narrowing], f[p.dhidden],
                                 into::write);
        on.gelu_tanh_backward(f.batch * hidden_states(), f[p.hidden], f[p.dhidden], f[p.dhidden], into::write);
        on.linear_backward_input(widening().matrix(), all, f[p.dhidden], f[p.widening], f[p.inner], into::write);
        on.copy(n, f.output_gradient, f[p.dmiddle2]);
        on.layer_norm_backward(norm(), all, f[p.middle2], f[p.norm3], f[p.statistics3], f[p.inner], f[p.dmiddle2],
                               f.gradient(p.norm3), f.bias_gradient(p.norm3), into::add);

        on.linear_backward_input(matrix, all, f[p.dmiddle2], f[p.to_out2], f[p.inner], into::write);
        on.attention_backward(cross(), f.batch, f[p.turned_q2], f[p.normal_k2], f[p.v2], f[p.mixed2], f[p.log_sums2],
                              f[p.inner], f[p.dturned_q], f[p.dnormal_k], f[p.dv2]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_q], f[p.dturned_q]);
        unnorm_heads(on, all, f[p.q2], f[p.norm_q2], f[p.statistics_q2], f[p.dturned_q], f[p.dq2],
                     f.gradient(p.norm_q2));
        unnorm_heads(on, texts, f[p.k2], f[p.norm_k2], f[p.statistics_k2], f[p.dnormal_k], f[p.dk2],
                     f.gradient(p.norm_k2));
        if (f.context_gradient != nullptr) {
            const linear_shape from_text = text_projection().matrix();
            on.linear_backward_input(from_text, texts, f[p.dk2], f[p.to_k2], f.context_gradient, into::add);
            on.linear_backward_input(from_text, texts, f[p.dv2], f[p.to_v2], f.context_gradient, into::add);
        }
        on.linear_backward_input(matrix, all, f[p.dq2], f[p.to_q2], f[p.inner], into::write);
        on.copy(n, f[p.dmiddle2], f[p.dmiddle1]);
        on.layer_norm_backward(norm(), all, f[p.middle1], f[p.norm2], f[p.statistics2], f[p.inner], f[p.dmiddle1],
                               f.gradient(p.norm2), f.bias_gradient(p.norm2), into::add);

        on.linear_backward_input(matrix, all, f[p.dmiddle1], f[p.to_out1], f[p.inner], into::write);
        on.attention_backward(self(), f.batch, f[p.turned_q1], f[p.turned_k1], f[p.v1], f[p.mixed1], f[p.log_sums1],
                              f[p.inner], f[p.dturned_q], f[p.dturned_k], f[p.dv1]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_q], f[p.dturned_q]);
        on.rotary_backward(turn(), f.batch, f[p.dturned_k], f[p.dturned_k]);
        unnorm_heads(on, all, f[p.q1], f[p.norm_q1], f[p.statistics_q1], f[p.dturned_q], f[p.dq1],
                     f.gradient(p.norm_q1));
        unnorm_heads(on, all, f[p.k1], f[p.norm_k1], f[p.statistics_k1], f[p.dturned_k], f[p.dk1],
                     f.gradient(p.norm_k1));
        on.linear_backward_input(matrix, all, f[p.dq1], f[p.to_q1], f[p.inner], into::write);
        on.linear_backward_input(matrix, all, f[p.dk1], f[p.to_k1], f[p.inner], into::add);
        on.linear_backward_input(matrix, all, f[p.dv1], f[p.to_v1], f[p.inner], into::add);

        auto* const target = f.input_gradient != nullptr ? f.input_gradient : f[p.nobody];
        auto* const before = skip ? f[p.djoined] : target;
        on.copy(n, f[p.dmiddle1], before);
        on.adaptive_norm_backward(norm1(), f.batch, skip ? f[p.joined] : f.input, f[p.norm1], f.bias(p.norm1), nullptr,
                                  f[p.statistics1], f[p.inner], before, f.gradient(p.norm1), f.bias_gradient(p.norm1),
                                  nullptr, f[p.dshift], into::add);
        on.linear_backward_input(matrix, f.batch, f[p.dshift], f[p.to_shift], f.conditioning_gradient, into::add);
        if (skip) { part(on, f, p, before); }
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        const std::int64_t texts = std::int64_t{f.batch} * context_tokens;
        if (skip) { joining().apply_backward_weight(on, all, f[p.skip_normal], f[p.djoined], f.gradient(p.joining)); }
        projection().apply_backward_weight(on, f.batch, f.conditioning, f[p.dshift], f.gradient(p.to_shift));
        projection().apply_backward_weight(on, all, f[p.normal1], f[p.dq1], f.gradient(p.to_q1));
        projection().apply_backward_weight(on, all, f[p.normal1], f[p.dk1], f.gradient(p.to_k1));
        projection().apply_backward_weight(on, all, f[p.normal1], f[p.dv1], f.gradient(p.to_v1));
        projection().apply_backward_weight(on, all, f[p.mixed1], f[p.dmiddle1], f.gradient(p.to_out1));
        projection().apply_backward_weight(on, all, f[p.normal2], f[p.dq2], f.gradient(p.to_q2));
        text_projection().apply_backward_weight(on, texts, f.context, f[p.dk2], f.gradient(p.to_k2));
        text_projection().apply_backward_weight(on, texts, f.context, f[p.dv2], f.gradient(p.to_v2));
        projection().apply_backward_weight(on, all, f[p.mixed2], f[p.dmiddle2], f.gradient(p.to_out2));
        widening().apply_backward_weight(on, all, f[p.normal3], f[p.dhidden], f.gradient(p.widening));
        on.gelu_tanh(f.batch * hidden_states(), f[p.hidden], f[p.active]);
        narrowing().apply_backward_weight(on, all, f[p.active], f.output_gradient, f.gradient(p.narrowing));
    }

private:
    /// y [tokens][2 * width]: each token of the input, then of the skip.
    template <backend B, class T, class A>
    void join(B& on, const layer_frame<T, A>& f, T* y) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        on.copy_rows(all, width, f.input, width, y, 2 * width);
        on.copy_rows(all, width, f.skip, width, y + width, 2 * width);
    }
    /// The gradients of input and skip from that of skip_linear's output.
    template <backend B>
    void part(B& on, const backend_frame<B>& f, const pieces& p, const typename B::scalar* dy) const {
        const std::int64_t all = std::int64_t{f.batch} * tokens();
        join(on, f, f[p.concatenation]);
        on.linear_backward_input(joining().matrix(), all, dy, f[p.joining], f[p.dskip_normal], into::write);
        on.layer_norm_backward(skip_norm(), all, f[p.concatenation], f[p.skip_norm], f[p.skip_statistics],
                               f[p.dskip_normal], f[p.dconcatenation], f.gradient(p.skip_norm),
                               f.bias_gradient(p.skip_norm), into::write);
        if (f.input_gradient != nullptr) {
            on.copy_rows(all, width, f[p.dconcatenation], 2 * width, f.input_gradient, width);
        }
        on.copy_rows(all, width, f[p.dconcatenation] + width, 2 * width, f.skip_gradient, width);
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
                               dweight != nullptr ? dweight + width / heads : nullptr, into::write);
    }
};

} // namespace pulse::nn
