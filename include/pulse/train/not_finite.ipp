#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/train/not_finite.hpp>

namespace pulse::train {

PULSE_INLINE void require_finite(std::span<const double> losses, std::span<const double> squares, std::size_t parts) {
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
