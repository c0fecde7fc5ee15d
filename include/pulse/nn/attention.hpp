#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Multi-head self-attention over the pixels of an image, with its norm and residual (diffusers' Attention in UNets):
/// y = x + to_out(attention(to_q(n), to_k(n), to_v(n))), n = group_norm(x).
///
/// A channels-last image is its own list of tokens: nothing is transposed. Parameters: group_norm, to_q, to_k, to_v,
/// to_out.0. Saves n, q, k, v and the heads' output; keeps its logarithms of sums and the norm's statistics; defers
/// dq, dk, dv.
struct attention {
    int channels{};
    int height{};
    int width{};
    int groups{};
    int heads{1};
    double epsilon{1e-5};

    [[nodiscard]] constexpr int tokens() const noexcept { return height * width; }
    [[nodiscard]] constexpr group_norm_shape norm() const noexcept {
        return {channels, 0, groups, tokens(), epsilon, false};
    }
    [[nodiscard]] constexpr attention_shape core() const noexcept { return {tokens(), heads, channels / heads}; }
    [[nodiscard]] constexpr linear projection() const noexcept { return {channels, channels}; }

    [[nodiscard]] constexpr flaw defect() const noexcept {
        if (channels <= 0 || height <= 0 || width <= 0 || groups <= 0 || heads <= 0) { return flaw::size; }
        if (channels % heads != 0) { return flaw::heads; }
        return channels % groups != 0 ? flaw::groups : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }
    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(name + ".group_norm", {channels});
        list.add_pair(name + ".to_q", {channels, channels});
        list.add_pair(name + ".to_k", {channels, channels});
        list.add_pair(name + ".to_v", {channels, channels});
        list.add_pair(name + ".to_out.0", {channels, channels});
        return list;
    }
    /// Four projections of every token, and the two products with every other token.
    [[nodiscard]] constexpr double forward_flops() const noexcept {
        return tokens() * (4.0 * projection().forward_flops() + 4.0 * tokens() * channels);
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 5 * elements(input()); }
    [[nodiscard]] constexpr std::int64_t statistics_elements() const noexcept {
        return std::int64_t{heads} * tokens() + 2 * std::int64_t{groups};
    }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 3 * elements(input()); }
    /// A gradient of the heads' output, then of n; and a place for the input's gradient where nobody reads it.
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 2 * elements(input()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        const auto w = weights(f.parameters);
        const auto kept = saved(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        on.group_norm(norm(), f.batch, f.input, nullptr, w.norm, w.norm + channels, kept.normal, kept.statistics);
        projection().apply(on, rows, kept.normal, w.q, kept.q);
        projection().apply(on, rows, kept.normal, w.k, kept.k);
        projection().apply(on, rows, kept.normal, w.v, kept.v);
        on.attention(core(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums);
        projection().apply(on, rows, kept.mixed, w.out, f.output);
        on.add(f.batch * elements(input()), f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        using T = typename B::scalar;
        const auto w = weights(f.parameters);
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        const auto [dq, dk, dv] = deferred(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        slices<T> workspace{f.workspace, f.batch};
        T* const inner_gradient = workspace.take(elements(input()));
        T* const nobody = workspace.take(elements(input()));

        const linear_shape matrix = projection().matrix();
        on.linear_backward_input(matrix, rows, f.output_gradient, w.out, inner_gradient, into::write);
        on.attention_backward(core(), f.batch, kept.q, kept.k, kept.v, kept.mixed, kept.log_sums, inner_gradient, dq,
                              dk, dv);
        on.linear_backward_input(matrix, rows, dq, w.q, inner_gradient, into::write);
        on.linear_backward_input(matrix, rows, dk, w.k, inner_gradient, into::add);
        on.linear_backward_input(matrix, rows, dv, w.v, inner_gradient, into::add);

        const bool wanted = f.input_gradient != nullptr;
        if (wanted) { on.copy(f.batch * elements(input()), f.output_gradient, f.input_gradient); }
        on.group_norm_backward(norm(), f.batch, f.input, nullptr, w.norm, w.norm + channels, kept.statistics,
                               inner_gradient, wanted ? f.input_gradient : nobody, nullptr, dw.norm, dw.norm + channels,
                               wanted ? into::add : into::write);
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        const auto dw = weights(f.parameter_gradients);
        const auto kept = saved(f);
        const auto [dq, dk, dv] = deferred(f);
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        projection().apply_backward_weight(on, rows, kept.normal, dq, dw.q);
        projection().apply_backward_weight(on, rows, kept.normal, dk, dw.k);
        projection().apply_backward_weight(on, rows, kept.normal, dv, dw.v);
        projection().apply_backward_weight(on, rows, kept.mixed, f.output_gradient, dw.out);
    }

private:
    template <class T>
    struct weight_pieces {
        T* norm;
        T* q;
        T* k;
        T* v;
        T* out;
    };
    template <class T, class A>
    struct saved_pieces {
        T* normal;
        T* q;
        T* k;
        T* v;
        T* mixed;
        A* log_sums;
        A* statistics;
    };
    template <class T>
    struct deferred_pieces {
        T* dq;
        T* dk;
        T* dv;
    };

    template <class T>
    [[nodiscard]] constexpr weight_pieces<T> weights(T* begin) const noexcept {
        slices<T> all{begin};
        const std::int64_t matrix = projection().weight_elements() + channels;
        return {.norm = all.take(2 * std::int64_t{channels}),
                .q = all.take(matrix),
                .k = all.take(matrix),
                .v = all.take(matrix),
                .out = all.take(matrix)};
    }
    template <class T, class A>
    [[nodiscard]] constexpr saved_pieces<T, A> saved(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.saved, f.batch};
        slices<A> precise{f.statistics, f.batch};
        const std::int64_t image = elements(input());
        return {.normal = all.take(image),
                .q = all.take(image),
                .k = all.take(image),
                .v = all.take(image),
                .mixed = all.take(image),
                .log_sums = precise.take(std::int64_t{heads} * tokens()),
                .statistics = precise.take(2 * std::int64_t{groups})};
    }
    template <class T, class A>
    [[nodiscard]] constexpr deferred_pieces<T> deferred(const layer_frame<T, A>& f) const noexcept {
        slices<T> all{f.deferred, f.batch};
        const std::int64_t image = elements(input());
        return {.dq = all.take(image), .dk = all.take(image), .dv = all.take(image)};
    }
};

} // namespace pulse::nn
