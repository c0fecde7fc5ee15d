#pragma once

#include <cstdint>

#include <pulse/nn/block.hpp>
#include <pulse/nn/description.hpp>
#include <pulse/nn/residual_sums.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// y = weight x + bias on one vector per sample. Parameters: weight [out][in], bias [out]. Saves nothing.
struct linear {
    static constexpr bool writes_gradients = true;

    int in_features{};
    int out_features{};

    [[nodiscard]] constexpr linear_shape matrix() const noexcept { return {in_features, out_features}; }
    [[nodiscard]] constexpr std::int64_t weight_elements() const noexcept {
        return std::int64_t{in_features} * out_features;
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        return in_features <= 0 || out_features <= 0 ? flaw::size : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {in_features, 0, 0}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return {out_features, 0, 0}; }
    constexpr weight_piece describe(description& d) const { return d.linear("", 1, matrix()); }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, weight_piece p) const {
        apply(on, f.batch, f.input, f[p], f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, weight_piece p) const {
        if (f.input_gradient == nullptr) { return; }
        on.linear_backward_input(matrix(), f.batch, f.output_gradient, f[p], f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f, weight_piece p) const {
        apply_backward_weight(on, f.batch, f.input, f.output_gradient, f.gradient(p));
    }

    /// The passes over explicit pointers, for blocks that contain a linear layer; `weight` is followed by the bias.
    template <backend B, class T>
    void apply(B& on, std::int64_t rows, const T* x, const T* weight, T* y) const {
        on.linear(matrix(), rows, x, weight, weight + weight_elements(), y, into::write);
    }
    /// y = residual + the layer's result.
    template <backend B, class T>
    void apply_onto(B& on, std::int64_t rows, const T* x, const T* weight, const T* residual, T* y) const {
        linear_onto(on, matrix(), rows, x, weight, weight + weight_elements(), residual, y);
    }
    template <backend B, class T>
    void apply_backward_weight(B& on, std::int64_t rows, const T* x, const T* dy,
                               gradient_place<typename B::accumulator> dweight) const {
        on.linear_backward_weight(matrix(), rows, x, dy, dweight, dweight + weight_elements());
    }
};

/// y = x * sigmoid(x). Saves nothing.
struct silu {
    static constexpr bool writes_gradients = true;

    int channels{};
    int height{}; ///< 0 for a vector of `channels` features
    int width{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        const bool vector = height == 0 && width == 0;
        return channels <= 0 || (!vector && (height <= 0 || width <= 0)) ? flaw::size : flaw::none;
    }
    [[nodiscard]] constexpr sample_dims input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr sample_dims output() const noexcept { return input(); }

    struct pieces {};
    constexpr pieces describe(description&) const { return {}; }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f, const pieces&) const {
        on.silu(f.batch * elements(input()), f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f, const pieces&) const {
        if (f.input_gradient == nullptr) { return; }
        on.silu_backward(f.batch * elements(input()), f.input, f.output_gradient, f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B&, const backend_frame<B>&, const pieces&) const {}
};

} // namespace pulse::nn
