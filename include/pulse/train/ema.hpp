#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pulse::train {

/// Decay of the weights' moving average at `step` (counted from 1): min(limit, (1 + step) / (10 + step)).
///
/// The warm-up lets the average forget the initial weights within the first steps, as in TensorFlow's
/// ExponentialMovingAverage and diffusers' EMAModel.
[[nodiscard]] constexpr double ema_decay(std::int64_t step, double limit = 0.999) noexcept {
    const double warming = (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step));
    return std::min(limit, warming);
}

/// average = decay average + (1 - decay) weight. The average starts as a copy of the initial weights.
template <std::floating_point T>
void ema_update(double decay, std::span<const T> weight, std::span<T> average) noexcept {
    const T share = static_cast<T>(1.0 - decay);
    const T* const source = weight.data();
    T* const target = average.data();
    const std::size_t size = average.size();
    for (std::size_t i = 0; i < size; ++i) { target[i] += share * (source[i] - target[i]); }
}

} // namespace pulse::train
