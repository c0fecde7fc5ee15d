#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::train {

/// A loss or a gradient of a step is not finite. Every rank throws it at the same point. Unless gradients are released,
/// nothing has changed then, so the step can be rerun to locate the fault (executor::watch_values).
struct not_finite_error : error {
    using error::error;
};

/// Throws not_finite_error naming the microbatch whose loss is not finite or not below 1e30 in magnitude, or else the
/// layer whose gradient is not finite.
///
/// `losses`: one per microbatch of a step. `squares`: sums of squared gradients, first `parts` of the conditioning
/// module, then `parts` of every layer.
inline void require_finite(std::span<const double> losses, std::span<const double> squares, std::size_t parts) {
    const auto fail = [](const std::string& what) {
        throw not_finite_error{what + " is not finite: a smaller learning rate may help"};
    };
    for (std::size_t m = 0; m != losses.size(); ++m) {
        if (!(std::abs(losses[m]) < 1e30)) { fail("the loss of microbatch " + std::to_string(m)); }
    }
    for (std::size_t i = 0; i != squares.size(); ++i) {
        if (std::isfinite(squares[i])) { continue; }
        const std::size_t position = i / parts;
        fail("the gradient of " +
             (position == 0 ? std::string{"the conditioning module"} : "layer " + std::to_string(position - 1)));
    }
}

} // namespace pulse::train
