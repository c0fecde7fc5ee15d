#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Multi-head self-attention over the pixels of an image, with its norm and residual (diffusers' Attention in UNets):
/// y = x + to_out(attention(to_q(n), to_k(n), to_v(n))), n = group_norm(x).
///
/// A channels-last image is its own list of tokens: nothing is transposed.
struct attention {
    static constexpr bool writes_gradients = true;

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
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }

    struct pieces {
        weight_piece norm, to_q, to_k, to_v, to_out;
        saved_piece normal, q, k, v, mixed; ///< mixed: the heads' output
        statistics_piece log_sums, statistics;
        deferred_piece dq, dk, dv;
        workspace_piece inner_gradient; ///< of the heads' output, then of n
        workspace_piece nobody;         ///< scratch for an input gradient that nobody reads
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.norm = d.norm("group_norm", channels);
        p.to_q = d.linear("to_q", tokens(), projection().matrix());
        p.to_k = d.linear("to_k", tokens(), projection().matrix());
        p.to_v = d.linear("to_v", tokens(), projection().matrix());
        p.to_out = d.linear("to_out.0", tokens(), projection().matrix());
        d.attention(core());
        d.save(elements(input()), p.normal, p.q, p.k, p.v, p.mixed);
        d.statistics(std::int64_t{heads} * tokens(), p.log_sums);
        d.statistics(2 * std::int64_t{groups}, p.statistics);
        d.defer(elements(input()), p.dq, p.dk, p.dv);
        d.work(elements(input()), p.inner_gradient, p.nobody);
        return p;
    }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        on.group_norm(norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm), f[p.normal], f[p.statistics]);
        projection().apply(on, rows, f[p.normal], f[p.to_q], f[p.q]);
        projection().apply(on, rows, f[p.normal], f[p.to_k], f[p.k]);
        projection().apply(on, rows, f[p.normal], f[p.to_v], f[p.v]);
        on.attention(core(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums]);
        projection().apply_onto(on, rows, f[p.mixed], f[p.to_out], f.input, f.output);
    }

    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        const linear_shape matrix = projection().matrix();
        on.linear_backward_input(matrix, rows, f.output_gradient, f[p.to_out], f[p.inner_gradient], into::write);
        on.attention_backward(core(), f.batch, f[p.q], f[p.k], f[p.v], f[p.mixed], f[p.log_sums], f[p.inner_gradient],
                              f[p.dq], f[p.dk], f[p.dv]);
        on.linear_backward_input(matrix, rows, f[p.dq], f[p.to_q], f[p.inner_gradient], into::write);
        on.linear_backward_input(matrix, rows, f[p.dk], f[p.to_k], f[p.inner_gradient], into::add);
        on.linear_backward_input(matrix, rows, f[p.dv], f[p.to_v], f[p.inner_gradient], into::add);

        const bool wanted = f.input_gradient != nullptr;
        auto* const target = wanted ? f.input_gradient : f[p.nobody];
        norm_backward_onto(on, f.batch * elements(input()), wanted ? f.output_gradient : nullptr, target,
                           [&](auto... how) {
                               on.group_norm_backward(norm(), f.batch, f.input, nullptr, f[p.norm], f.bias(p.norm),
                                                      f[p.statistics], f[p.inner_gradient], target, nullptr,
                                                      f.gradient(p.norm), f.bias_gradient(p.norm), how...);
                           });
    }

    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, const pieces& p) const {
        const std::int64_t rows = std::int64_t{f.batch} * tokens();
        projection().apply_backward_weight(on, rows, f[p.normal], f[p.dq], f.gradient(p.to_q));
        projection().apply_backward_weight(on, rows, f[p.normal], f[p.dk], f.gradient(p.to_k));
        projection().apply_backward_weight(on, rows, f[p.normal], f[p.dv], f.gradient(p.to_v));
        projection().apply_backward_weight(on, rows, f[p.mixed], f.output_gradient, f.gradient(p.to_out));
    }
};

} // namespace pulse::nn
