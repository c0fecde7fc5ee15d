#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// Two linear layers with SiLU between them: silu(x W1 + b1) W2 + b2 on `rows` vectors; a part of conditioning modules.
struct mlp_embedding {
    int rows{1};
    int features{};
    int hidden{};
    int width{};

    [[nodiscard]] constexpr linear first() const noexcept { return {features, hidden}; }
    [[nodiscard]] constexpr linear second() const noexcept { return {hidden, width}; }
    [[nodiscard]] constexpr std::int64_t hidden_elements() const noexcept { return std::int64_t{rows} * hidden; }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        return rows <= 0 || features <= 0 || hidden <= 0 || width <= 0 ? flaw::size : flaw::none;
    }

    struct pieces {
        weight_piece first, second;
        saved_piece hidden, active; ///< the first layer's output and its SiLU, [batch][rows][hidden] each
    };
    constexpr pieces describe(description& d) const {
        pieces p{};
        p.first = d.linear("linear_1", rows, first().matrix());
        p.second = d.linear("linear_2", rows, second().matrix());
        d.save(hidden_elements(), p.hidden, p.active);
        return p;
    }

    /// y [batch][rows][width] of x [batch][rows][features].
    template <backend B>
    void apply(B& on, const backend_frame<B>& f, const pieces& p, const typename B::scalar* x,
               typename B::scalar* y) const {
        const std::int64_t all = std::int64_t{f.batch} * rows;
        first().apply(on, all, x, f[p.first], f[p.hidden]);
        on.silu(all * hidden, f[p.hidden], f[p.active]);
        second().apply(on, all, f[p.active], f[p.second], y);
    }
    /// Makes every parameter gradient and leaves the gradient of the first layer's output in `hidden_gradient`
    /// [batch][rows][hidden].
    template <backend B>
    void apply_backward(B& on, const backend_frame<B>& f, const pieces& p, const typename B::scalar* x,
                        const typename B::scalar* dy, typename B::scalar* hidden_gradient) const {
        const std::int64_t all = std::int64_t{f.batch} * rows;
        second().apply_backward_weight(on, all, f[p.active], dy, f.gradient(p.second));
        on.linear_backward_input(second().matrix(), all, dy, f[p.second], hidden_gradient, into::write);
        on.silu_backward(all * hidden, f[p.hidden], hidden_gradient, hidden_gradient, into::write);
        first().apply_backward_weight(on, all, x, hidden_gradient, f.gradient(p.first));
    }
};

} // namespace pulse::nn
