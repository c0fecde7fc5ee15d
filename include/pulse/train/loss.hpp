#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/train/noise_schedule.hpp>

namespace pulse::train {

/// Share of one or more samples in a step's mean squared error, and its gradient.
///
/// Returns sum(weight (prediction - target)^2) / step_elements and writes 2 weight (prediction - target) /
/// step_elements. `step_elements` counts the elements of all samples of the step, so microbatches add up to the step's
/// mean and its gradient. The sum is in double and in order. `gradient` may alias `prediction`.
template <std::floating_point T>
double mean_squared_error(std::span<const T> prediction, std::span<const T> target, std::int64_t step_elements,
                          std::span<T> gradient, double weight = 1.0) noexcept {
    const double scale = weight / static_cast<double>(step_elements);
    const T gradient_scale = static_cast<T>(2.0 * scale);
    double sum = 0.0;
    for (std::size_t i = 0; i != gradient.size(); ++i) {
        const T difference = prediction[i] - target[i];
        sum += static_cast<double>(difference) * static_cast<double>(difference);
        gradient[i] = gradient_scale * difference;
    }
    return sum * scale;
}

/// The same with each error weighted by `mask`, one value per pixel for all its channels. A mask of ones changes no
/// bit.
template <std::floating_point T>
double masked_squared_error(std::span<const T> prediction, std::span<const T> target, std::span<const T> mask,
                            std::int64_t step_elements, std::span<T> gradient, double weight = 1.0) noexcept {
    const double scale = weight / static_cast<double>(step_elements);
    const T gradient_scale = static_cast<T>(2.0 * scale);
    const std::size_t channels = gradient.size() / mask.size();
    double sum = 0.0;
    for (std::size_t i = 0; i != gradient.size(); ++i) {
        const T difference = prediction[i] - target[i];
        const T masked = mask[i / channels] * difference;
        sum += static_cast<double>(masked) * static_cast<double>(difference);
        gradient[i] = gradient_scale * masked;
    }
    return sum * scale;
}

/// Weight of a sample at time t under min-SNR-gamma: min(snr, gamma), divided by the ratio of the answer's squared
/// error to the image's: snr for epsilon, snr + 1 for v, 1 for the sample.
///
/// Source: Hang et al., "Efficient diffusion training via min-SNR weighting strategy" (arXiv 2303.09556), section 3.4
/// (gamma 5 there). An infinite gamma with epsilon gives 1, the plain loss.
[[nodiscard]] inline double min_snr_weight(const noise_schedule& schedule, prediction_type type, int t,
                                           double gamma = 5.0) noexcept {
    const double snr = schedule.snr(t);
    const double clipped = std::min(snr, gamma);
    switch (type) {
    case prediction_type::epsilon: return clipped / snr;
    case prediction_type::velocity: return clipped / (snr + 1.0);
    default: return clipped;
    }
}

} // namespace pulse::train
