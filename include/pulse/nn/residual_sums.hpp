#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/residual_sums.hpp>

// Results of an operation plus a residual or a vector per sample: fused if the backend can, else in two steps.

namespace pulse::nn {

/// y = residual + x weight^T + bias.
template <backend B, class T>
void linear_onto(B& on, const linear_shape& s, std::int64_t rows, const T* x, const T* weight, const T* bias,
                 const T* residual, T* y) {
    if constexpr (sums_residuals<B>) {
        on.linear(s, rows, x, weight, bias, y, into::add, residual);
    } else {
        on.linear(s, rows, x, weight, bias, y, into::write);
        on.add(rows * s.out_features, residual, y);
    }
}

/// y = residual + the convolution of x + bias.
template <backend B, class T>
void conv2d_onto(B& on, const conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, const T* residual,
                 T* y) {
    if constexpr (sums_residuals<B>) {
        on.conv2d(s, batch, x, weight, bias, y, into::add, residual);
    } else {
        on.conv2d(s, batch, x, weight, bias, y, into::write);
        on.add(batch * s.out_elements(), residual, y);
    }
}

/// y[b][p][c] = the convolution of x + bias + t[b][c].
template <backend B, class T>
void conv2d_per_sample(B& on, const conv2d_shape& s, int batch, const T* x, const T* weight, const T* bias, const T* t,
                       T* y) {
    if constexpr (sums_residuals<B>) {
        on.conv2d_per_sample(s, batch, x, weight, bias, t, y);
    } else {
        on.conv2d(s, batch, x, weight, bias, y, into::write);
        on.add_per_sample(batch, s.out_height() * s.out_width(), s.out_channels, t, y);
    }
}

/// dx [n] = residual + the result of backward(how...), which passes `how...` on to a norm's backward pass; without the
/// residual if it is null.
template <backend B, class T, class Backward>
void norm_backward_onto(B& on, std::int64_t n, const T* residual, T* dx, const Backward& backward) {
    const into how = residual != nullptr ? into::add : into::write;
    if constexpr (sums_residuals<B>) {
        backward(how, residual);
    } else {
        if (residual != nullptr) { on.copy(n, residual, dx); }
        backward(how);
    }
}

} // namespace pulse::nn
