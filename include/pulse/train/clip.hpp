#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::train {

/// Sum of the squares of one tensor's gradient, in double, in an order that depends on its size only.
template <std::floating_point T>
[[nodiscard]] double sum_of_squares(std::span<const T> gradient) noexcept {
    constexpr std::size_t lanes = 16; // independent sums that a compiler can keep in vector registers
    std::array<double, lanes> partial{};
    const std::size_t whole = gradient.size() / lanes * lanes;
    for (std::size_t i = 0; i != whole; i += lanes) {
        for (std::size_t lane = 0; lane != lanes; ++lane) {
            const double x = static_cast<double>(gradient[i + lane]);
            partial[lane] += x * x;
        }
    }
    double sum = 0.0;
    for (const double lane : partial) { sum += lane; }
    for (std::size_t i = whole; i != gradient.size(); ++i) {
        const double x = static_cast<double>(gradient[i]);
        sum += x * x;
    }
    return sum;
}

/// Factor that clips gradients of this norm: min(1, max_norm / norm); 1 if max_norm is 0.
[[nodiscard]] constexpr double clip_scale(double norm, double max_norm) noexcept {
    return max_norm > 0.0 && norm > max_norm ? max_norm / norm : 1.0;
}

/// Norm of a step's whole gradient, and the factor for every gradient.
struct gradient_clip {
    double norm{};
    double scale = 1.0;
};

/// Clipping by the global norm (clip_scale).
///
/// `squares` holds sum_of_squares of every tensor (or layer) of the whole model in the model's order, whichever rank
/// computed it. Adding in that order makes the result independent of how layers are spread over ranks. Throws
/// pulse::error with the position of the first sum that is not finite. Source: Pascanu, Mikolov, Bengio (2013).
[[nodiscard]] inline gradient_clip clip_by_global_norm(std::span<const double> squares, double max_norm) {
    double sum = 0.0;
    for (std::size_t i = 0; i != squares.size(); ++i) {
        if (!std::isfinite(squares[i])) {
            throw error("the gradient of tensor " + std::to_string(i) + " of the model is not finite");
        }
        sum += squares[i];
    }
    gradient_clip result{.norm = std::sqrt(sum)};
    result.scale = clip_scale(result.norm, max_norm);
    return result;
}

} // namespace pulse::train
