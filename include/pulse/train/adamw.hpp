#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/ema.hpp>

namespace pulse::train {

using pulse::adamw_constants;

/// Factors shared by every weight of a step, computed once in double.
template <std::floating_point T>
struct adamw_factors {
    T gradient_scale; ///< clipping factor / loss scale
    T keep;           ///< 1 - learning_rate weight_decay
    T beta1;
    T one_minus_beta1;
    T beta2;
    T one_minus_beta2;
    T inverse_root_correction2; ///< 1 / sqrt(1 - beta2^step)
    T step_size;                ///< learning_rate / (1 - beta1^step)
    T epsilon;
};

/// `step` counts from 1; `gradient_scale` multiplies every gradient before it is used.
template <std::floating_point T>
[[nodiscard]] adamw_factors<T> factors_of(const adamw_constants& c, std::int64_t step, double gradient_scale = 1.0) {
    const double correction1 = 1.0 - std::pow(c.beta1, static_cast<double>(step));
    const double correction2 = 1.0 - std::pow(c.beta2, static_cast<double>(step));
    return {.gradient_scale = static_cast<T>(gradient_scale),
            .keep = static_cast<T>(1.0 - c.learning_rate * c.weight_decay),
            .beta1 = static_cast<T>(c.beta1),
            .one_minus_beta1 = static_cast<T>(1.0 - c.beta1),
            .beta2 = static_cast<T>(c.beta2),
            .one_minus_beta2 = static_cast<T>(1.0 - c.beta2),
            .inverse_root_correction2 = static_cast<T>(1.0 / std::sqrt(correction2)),
            .step_size = static_cast<T>(c.learning_rate / correction1),
            .epsilon = static_cast<T>(c.epsilon)};
}

/// One AdamW step on `w` with gradient `g` and moments `m`, `v` (zero before the first step); all of one size.
///
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2, with bias correction.
template <std::floating_point T>
void adamw_step(const adamw_factors<T>& f, std::span<T> w, std::span<const T> g, std::span<T> m,
                std::span<T> v) noexcept {
    T* const weight = w.data();
    const T* const gradient = g.data();
    T* const first = m.data();
    T* const second = v.data();
    const std::size_t size = w.size();
    for (std::size_t i = 0; i < size; ++i) {
        const T slope = f.gradient_scale * gradient[i];
        const T mean = f.beta1 * first[i] + f.one_minus_beta1 * slope;
        const T square = f.beta2 * second[i] + f.one_minus_beta2 * (slope * slope);
        first[i] = mean;
        second[i] = square;
        weight[i] =
            f.keep * weight[i] - f.step_size * mean / (std::sqrt(square) * f.inverse_root_correction2 + f.epsilon);
    }
}

/// AdamW, then the moving average, in plain loops: the portable update rule.
struct plain_adamw {
    void operator()(const optimizer_update& now, std::span<float> weights, std::span<const float> gradients,
                    std::span<float> first_moment, std::span<float> second_moment,
                    std::span<float> average) const noexcept {
        adamw_step<float>(factors_of<float>(now.constants, now.step, now.gradient_scale), weights, gradients,
                          first_moment, second_moment);
        ema_update<float>(now.average_decay, weights, average);
    }
};
static_assert(optimizer_rule<plain_adamw>, "plain_adamw is an update rule");

} // namespace pulse::train
