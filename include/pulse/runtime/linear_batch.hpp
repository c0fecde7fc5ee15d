#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// Products of one input with several weights of one shape. Weights and results each have a constant stride.
struct linear_batch_shape {
    linear_shape each{};
    int count{};
    std::int64_t weight_stride{}; ///< elements from a weight, or its gradient, to the next one
    std::int64_t result_stride{}; ///< elements from a result, or its gradient, to the next one

    /// Whether there are products, and neither weights nor results overlap.
    [[nodiscard]] constexpr bool sound(std::int64_t rows) const noexcept {
        return count > 0 && weight_stride >= std::int64_t{each.in_features} * each.out_features &&
               result_stride >= rows * each.out_features;
    }
    [[nodiscard]] constexpr bool operator==(const linear_batch_shape&) const = default;
};

/// A backend that benefits from computing several linear layers of one input at once:
///
/// - linear_batch: y[i] = or += x weight[i]^T.
/// - linear_batch_backward_weight: dweight[i] = or += dy[i]^T x.
///
/// No layer has a bias. Without these operations, a backend computes each product on its own (nn/linear_batch.hpp).
template <class B>
concept batches_linear = backend<B> &&
    requires(B& b, const typename B::scalar* x, typename B::scalar* y, gradient_place<typename B::accumulator> gradient,
             const linear_batch_shape& shape, std::int64_t rows, into how) {
    // x, first weight, first y / x, first dy, first dweight
    b.linear_batch(shape, rows, x, x, y, how);
    b.linear_batch_backward_weight(shape, rows, x, x, gradient);
};

} // namespace pulse
