#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// A backend that benefits from computing a sum together with one of its summands:
///
/// - linear, conv2d, group_norm_backward, layer_norm_backward, adaptive_norm_backward: with into::add they accept a
///   residual and write its sum with their result, instead of adding to the destination. For a group norm, the residual
///   belongs to the first source.
/// - conv2d_per_sample: y[b][p][c] = (convolution of x)[b][p][c] + bias[c] + t[b][c].
///
/// Without these operations, a backend computes each summand on its own (nn/residual_sums.hpp).
template <class B>
concept sums_residuals = backend<B> &&
    requires(B& b, const typename B::scalar* x, typename B::scalar* y, const typename B::accumulator* a,
             gradient_place<typename B::accumulator> gradient, const linear_shape& lin, const conv2d_shape& conv,
             const group_norm_shape& norm, const layer_norm_shape& row_norm, const adaptive_norm_shape& adaptive,
             int batch, std::int64_t rows, into how) {
    b.linear(lin, rows, x, x, x, y, how, x);
    b.conv2d(conv, batch, x, x, x, y, how, x);
    b.group_norm_backward(norm, batch, x, x, x, x, a, x, y, y, gradient, gradient, how, x);
    b.layer_norm_backward(row_norm, rows, x, x, a, x, y, gradient, gradient, how, x);
    b.adaptive_norm_backward(adaptive, batch, x, x, x, x, a, x, y, gradient, gradient, y, y, how, x);
    b.conv2d_per_sample(conv, batch, x, x, x, x, y); // x, weight, bias, t, y
};

} // namespace pulse
