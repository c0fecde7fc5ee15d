#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace pulse::train {

/// Shape of the learning rate after its warm-up.
enum class learning_rate_shape : std::uint8_t { constant, linear, cosine };

/// Learning rate of each step: linear warm-up to `peak`, then constant, or linear or half a cosine down to `last`.
struct learning_rate_schedule {
    double peak = 1e-3;
    std::int64_t warmup_steps = 0;
    learning_rate_shape shape = learning_rate_shape::constant;
    std::int64_t total_steps = 0; ///< ignored by `constant`; the rate is `last` from this step on
    double last = 0.0;

    /// The rate of `step`, counted from 1. Source of the cosine: Loshchilov and Hutter, "SGDR" (2017).
    [[nodiscard]] double at(std::int64_t step) const noexcept {
        if (step < warmup_steps) { return peak * static_cast<double>(step) / static_cast<double>(warmup_steps); }
        if (shape == learning_rate_shape::constant) { return peak; }
        if (step >= total_steps) { return last; }
        const double span = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
        const double done = static_cast<double>(step - warmup_steps) / span;
        if (shape == learning_rate_shape::linear) { return last + (peak - last) * (1.0 - done); }
        return last + (peak - last) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    }
};

} // namespace pulse::train
