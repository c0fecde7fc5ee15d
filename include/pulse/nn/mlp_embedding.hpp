#pragma once

#include <cstdint>
#include <string_view>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::nn {

/// Two linear layers with SiLU between them: silu(x W1 + b1) W2 + b2 on `rows` vectors. Parameters: linear_1, linear_2.
struct mlp_embedding {
    int rows{1};
    int features{};
    int hidden{};
    int width{};

    /// What a forward pass leaves for the backward: the first layer's output and its SiLU, [batch][rows][hidden] each.
    template <class T>
    struct kept_pieces {
        T* hidden;
        T* active;
    };

    [[nodiscard]] constexpr linear first() const noexcept { return {features, hidden}; }
    [[nodiscard]] constexpr linear second() const noexcept { return {hidden, width}; }
    [[nodiscard]] constexpr std::int64_t parameter_elements() const noexcept {
        return first().weight_elements() + hidden + second().weight_elements() + width;
    }
    [[nodiscard]] constexpr std::int64_t hidden_elements() const noexcept { return std::int64_t{rows} * hidden; }
    [[nodiscard]] constexpr std::int64_t kept_elements() const noexcept { return 2 * hidden_elements(); }

    [[nodiscard]] constexpr flaw defect() const noexcept {
        return rows <= 0 || features <= 0 || hidden <= 0 || width <= 0 ? flaw::size : flaw::none;
    }
    template <class Description>
    constexpr void describe(Description& d, const label& name) const {
        d.within(name);
        describe_into(d, "linear_1", "linear_2");
        d.keep(std::int64_t{rows} * features);
        d.keep(std::int64_t{rows} * hidden);
        d.keep(std::int64_t{rows} * hidden);
    }
    template <class Description>
    constexpr void describe_into(Description& d, std::string_view one, std::string_view two) const {
        d.linear(one, rows, features, hidden);
        d.linear(two, rows, hidden, width);
    }

    template <class T>
    [[nodiscard]] constexpr kept_pieces<T> take(slices<T>& from) const noexcept {
        T* const before = from.take(hidden_elements());
        return {before, from.take(hidden_elements())};
    }

    /// y [batch][rows][width] of x [batch][rows][features]; `weights` are this module's.
    template <backend B, class T>
    void apply(B& on, int batch, const T* x, const T* weights, const kept_pieces<T>& kept, T* y) const {
        const std::int64_t all = std::int64_t{batch} * rows;
        first().apply(on, all, x, weights, kept.hidden);
        on.silu(all * hidden, kept.hidden, kept.active);
        second().apply(on, all, kept.active, second_of(weights), y);
    }
    /// Adds every parameter gradient and leaves the gradient of the first layer's output in `hidden_gradient`
    /// [batch][rows][hidden].
    template <backend B, class T, class A>
    void apply_backward(B& on, int batch, const T* x, const T* weights, const kept_pieces<T>& kept, const T* dy,
                        T* hidden_gradient, A* dweights) const {
        const std::int64_t all = std::int64_t{batch} * rows;
        second().apply_backward_weight(on, all, kept.active, dy, second_of(dweights));
        on.linear_backward_input(second().matrix(), all, dy, second_of(weights), hidden_gradient, into::write);
        on.silu_backward(all * hidden, kept.hidden, hidden_gradient, hidden_gradient, into::write);
        first().apply_backward_weight(on, all, x, hidden_gradient, dweights);
    }

private:
    template <class T>
    [[nodiscard]] constexpr T* second_of(T* weights) const noexcept {
        return weights + first().weight_elements() + hidden;
    }
};

} // namespace pulse::nn
