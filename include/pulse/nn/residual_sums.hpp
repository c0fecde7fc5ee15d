#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/residual_sums.hpp>

// Sums of a residual, or of a vector per sample, and of what an operation makes: at once where the backend can, else
// one after the other.

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

/// dx of n elements = residual + what backward(how...) makes of it, which hands on to a norm's backward pass how dx is
/// made. Without the residual where that is null.
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
