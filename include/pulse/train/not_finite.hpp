#pragma once

#include <cstddef>
#include <span>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

/// A loss or a gradient of a step is not finite. Every rank throws it at the same place, and nothing has changed: the
/// step may be looked at again (executor::watch_values tells where it began).
struct not_finite_error : error {
    using error::error;
};

/// Throws not_finite_error naming the microbatch whose loss, or else the layer whose gradient, is not finite or beyond
/// 1e30.
///
/// `losses`: of every microbatch of a step. `squares`: sums of squared gradients, `parts` of the conditioning module
/// first, then `parts` of every layer.
PULSE_INLINE void require_finite(std::span<const double> losses, std::span<const double> squares, std::size_t parts);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/train/not_finite.ipp> // IWYU pragma: keep
#endif
