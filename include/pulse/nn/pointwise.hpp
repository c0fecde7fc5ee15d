#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/nn/block.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/layer_frame.hpp>

namespace pulse::nn {

/// y = weight x + bias on one vector per sample. Parameters: weight [out][in], bias [out]. Saves nothing.
struct linear {
    int in_features{};
    int out_features{};

    [[nodiscard]] constexpr linear_shape matrix() const noexcept { return {in_features, out_features}; }
    [[nodiscard]] constexpr std::int64_t weight_elements() const noexcept {
        return std::int64_t{in_features} * out_features;
    }
    [[nodiscard]] constexpr flaw defect() const noexcept {
        return in_features <= 0 || out_features <= 0 ? flaw::size : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {in_features, 0, 0}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return {out_features, 0, 0}; }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }
    [[nodiscard]] constexpr parameter_list parameters(const label& name) const {
        parameter_list list;
        list.add_pair(name, {out_features, in_features});
        return list;
    }
    /// For one row.
    [[nodiscard]] constexpr double forward_flops() const noexcept {
        return 2.0 * static_cast<double>(weight_elements());
    }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 0; }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        apply(on, f.batch, f.input, f.parameters, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        if (f.input_gradient == nullptr) { return; }
        on.linear_backward_input(matrix(), f.batch, f.output_gradient, f.parameters, f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B& on, const backend_frame<B>& f) const {
        apply_backward_weight(on, f.batch, f.input, f.output_gradient, f.parameter_gradients);
    }

    /// The passes over explicit pointers, for blocks that contain a linear layer; `weight` is followed by the bias.
    template <backend B, class T>
    void apply(B& on, std::int64_t rows, const T* x, const T* weight, T* y) const {
        on.linear(matrix(), rows, x, weight, weight + weight_elements(), y, into::write);
    }
    template <backend B, class T, class A>
    void apply_backward_weight(B& on, std::int64_t rows, const T* x, const T* dy, A* dweight) const {
        on.linear_backward_weight(matrix(), rows, x, dy, dweight, dweight + weight_elements());
    }
};

/// y = x * sigmoid(x). Saves nothing.
struct silu {
    int channels{};
    int height{}; ///< 0 for a vector of `channels` features
    int width{};

    [[nodiscard]] constexpr flaw defect() const noexcept {
        const bool vector = height == 0 && width == 0;
        return channels <= 0 || (!vector && (height <= 0 || width <= 0)) ? flaw::size : flaw::none;
    }
    [[nodiscard]] constexpr extent input() const noexcept { return {channels, height, width}; }
    [[nodiscard]] constexpr extent skip_input() const noexcept { return {}; }
    [[nodiscard]] constexpr extent output() const noexcept { return input(); }
    [[nodiscard]] constexpr int conditioning_features() const noexcept { return 0; }
    [[nodiscard]] constexpr parameter_list parameters(const label&) const { return {}; }
    [[nodiscard]] constexpr double forward_flops() const noexcept { return 0.0; }
    [[nodiscard]] constexpr std::int64_t saved_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t deferred_elements() const noexcept { return 0; }
    [[nodiscard]] constexpr std::int64_t workspace_elements() const noexcept { return 0; }

    template <backend B>
    void forward(B& on, const backend_frame<B>& f) const {
        on.silu(f.batch * elements(input()), f.input, f.output);
    }
    template <backend B>
    void backward_input(B& on, const backend_frame<B>& f) const {
        if (f.input_gradient == nullptr) { return; }
        on.silu_backward(f.batch * elements(input()), f.input, f.output_gradient, f.input_gradient, into::write);
    }
    template <backend B>
    void backward_weight(B&, const backend_frame<B>&) const {}
};

} // namespace pulse::nn
