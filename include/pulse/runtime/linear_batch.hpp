#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// Products of one input with several weights of one shape. The weights lie at equal distances, and so do the results.
struct linear_batch_shape {
    linear_shape each{};
    int count{};
    std::int64_t weight_stride{}; ///< elements from a weight, or its gradient, to the next one
    std::int64_t result_stride{}; ///< elements from a result, or its gradient, to the next one

    /// Nothing overlaps.
    [[nodiscard]] constexpr bool sound(std::int64_t rows) const noexcept {
        return count > 0 && weight_stride >= std::int64_t{each.in_features} * each.out_features &&
               result_stride >= rows * each.out_features;
    }
    [[nodiscard]] constexpr bool operator==(const linear_batch_shape&) const = default;
};

/// A backend on which it is of use to ask for several linear layers of one input at once:
///
/// - linear_batch: y[i] = x weight[i]^T, or y[i] += it.
/// - linear_batch_backward_weight: dweight[i] = or += dy[i]^T x.
///
/// No layer has a bias. A backend without them is asked for each product on its own (nn/linear_batch.hpp).
template <class B>
concept batches_linear = backend<B> &&
    requires(B& b, const typename B::scalar* x, typename B::scalar* y, gradient_place<typename B::accumulator> gradient,
             const linear_batch_shape& shape, std::int64_t rows, into how) {
    // x, first weight, first y / x, first dy, first dweight
    b.linear_batch(shape, rows, x, x, y, how);
    b.linear_batch_backward_weight(shape, rows, x, x, gradient);
};

} // namespace pulse
