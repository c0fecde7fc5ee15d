#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/noise_level.hpp>

namespace pulse::train {

/// What the network predicts from x_t: the noise, v = a eps - s x0 (Salimans and Ho 2022), or x0.
enum class prediction_type : std::uint8_t { epsilon, velocity, sample };

/// The variances of a discrete-time diffusion process: x_t = a_t x0 + s_t eps, a_t^2 + s_t^2 = 1, t in [0, steps).
///
/// Source: Ho, Jain, Abbeel, "Denoising diffusion probabilistic models" (2020). All tables are double.
class noise_schedule {
public:
    /// From betas. Throws input_error unless there is at least one and each is in (0, 1).
    explicit noise_schedule(std::vector<double> betas) : betas_{std::move(betas)} {
        if (betas_.empty()) { throw input_error("noise schedule: betas must not be empty"); }
        alphas_cumprod_.reserve(betas_.size());
        double product = 1.0;
        for (std::size_t t = 0; t != betas_.size(); ++t) {
            if (!(betas_[t] > 0.0 && betas_[t] < 1.0)) {
                throw input_error("noise schedule: beta " + std::to_string(t) + " must be above 0 and below 1");
            }
            product *= 1.0 - betas_[t];
            alphas_cumprod_.push_back(product);
        }
    }

    /// Betas evenly spaced from `first` to `last` (Ho et al. 2020, section 4: 1e-4 to 0.02 over 1000 steps).
    [[nodiscard]] static noise_schedule linear(int steps = 1000, double first = 1e-4, double last = 0.02) {
        std::vector<double> betas(checked(steps));
        const double intervals = std::max(1.0, static_cast<double>(steps - 1));
        for (std::size_t t = 0; t != betas.size(); ++t) {
            betas[t] = first + (last - first) * (static_cast<double>(t) / intervals);
        }
        return noise_schedule{std::move(betas)};
    }

    /// Betas whose square roots are evenly spaced; defaults of Stable Diffusion (Rombach et al. 2022).
    [[nodiscard]] static noise_schedule scaled_linear(int steps = 1000, double first = 0.00085, double last = 0.012) {
        std::vector<double> betas(checked(steps));
        const double root = std::sqrt(first);
        const double rise = (std::sqrt(last) - root) / std::max(1.0, static_cast<double>(steps - 1));
        for (std::size_t t = 0; t != betas.size(); ++t) {
            const double at = root + rise * static_cast<double>(t);
            betas[t] = at * at;
        }
        return noise_schedule{std::move(betas)};
    }

    /// Betas between `first` and `last` along the logistic function from -6 to 6.
    [[nodiscard]] static noise_schedule sigmoid(int steps = 1000, double first = 1e-4, double last = 0.02) {
        std::vector<double> betas(checked(steps));
        const double intervals = std::max(1.0, static_cast<double>(steps - 1));
        for (std::size_t t = 0; t != betas.size(); ++t) {
            betas[t] = first + (last - first) / (1.0 + std::exp(6.0 - 12.0 * (static_cast<double>(t) / intervals)));
        }
        return noise_schedule{std::move(betas)};
    }

    /// alphas_cumprod along a squared cosine (Nichol and Dhariwal 2021, equation 17), betas at most 0.999.
    [[nodiscard]] static noise_schedule cosine(int steps = 1000, double offset = 0.008) {
        std::vector<double> betas(checked(steps));
        const auto bar = [&](std::size_t t) {
            const double time = static_cast<double>(t) / static_cast<double>(betas.size());
            const double c = std::cos((time + offset) / (1.0 + offset) * std::numbers::pi / 2.0);
            return c * c;
        };
        for (std::size_t t = 0; t != betas.size(); ++t) { betas[t] = std::min(1.0 - bar(t + 1) / bar(t), 0.999); }
        return noise_schedule{std::move(betas)};
    }

    /// The same schedule with zero terminal SNR: signals shifted and scaled to 0 at the last step, and unchanged at the
    /// first. Source: Lin et al. (arXiv 2305.08891), algorithm 1. Throws input_error on a single step.
    [[nodiscard]] noise_schedule with_zero_terminal_snr() const {
        if (steps() < 2) { throw input_error("noise schedule: zero terminal SNR needs at least 2 steps"); }
        const double last = signal(steps() - 1);
        const double stretch = signal(0) / (signal(0) - last);
        noise_schedule result = *this;
        for (std::size_t t = 0; t != betas_.size(); ++t) {
            const double root = (signal(static_cast<int>(t)) - last) * stretch;
            result.alphas_cumprod_[t] = root * root;
            result.betas_[t] = 1.0 - result.alphas_cumprod_[t] / result.alpha_cumprod(static_cast<int>(t) - 1);
        }
        return result;
    }

    [[nodiscard]] int steps() const noexcept { return static_cast<int>(betas_.size()); }
    [[nodiscard]] std::span<const double> betas() const noexcept { return betas_; }
    [[nodiscard]] std::span<const double> alphas_cumprod() const noexcept { return alphas_cumprod_; }

    /// Product of (1 - beta) over steps 0 to t; 1 for t = -1, the clean image.
    [[nodiscard]] double alpha_cumprod(int t) const noexcept {
        return t < 0 ? 1.0 : alphas_cumprod_[static_cast<std::size_t>(t)];
    }
    /// a_t, the factor of the image in x_t.
    [[nodiscard]] double signal(int t) const noexcept { return std::sqrt(alpha_cumprod(t)); }
    /// s_t, the factor of the noise in x_t.
    [[nodiscard]] double sigma(int t) const noexcept { return std::sqrt(1.0 - alpha_cumprod(t)); }
    /// Signal-to-noise ratio a_t^2 / s_t^2; t >= 0.
    [[nodiscard]] double snr(int t) const noexcept { return alpha_cumprod(t) / (1.0 - alpha_cumprod(t)); }
    /// Level of time t for a network that predicts `type`.
    [[nodiscard]] noise_level at(int t, prediction_type type) const noexcept {
        noise_level level{.signal = signal(t), .sigma = sigma(t), .time = static_cast<double>(t)};
        if (type == prediction_type::velocity) {
            level.target_image = -level.sigma;
            level.target_noise = level.signal;
        } else if (type == prediction_type::sample) {
            level.target_image = 1;
            level.target_noise = 0;
        }
        return level;
    }
    [[nodiscard]] bool has_zero_terminal_snr() const noexcept { return alphas_cumprod_.back() == 0.0; }

private:
    [[nodiscard]] static std::size_t checked(int steps) {
        if (steps < 1) { throw input_error("noise schedule: steps must be at least 1, not " + std::to_string(steps)); }
        return static_cast<std::size_t>(steps);
    }

    std::vector<double> betas_;
    std::vector<double> alphas_cumprod_;
};

/// Throws input_error if a prediction of `type` does not determine the image at every step.
inline void require_predictable(const noise_schedule& schedule, prediction_type type) {
    if (type == prediction_type::epsilon && schedule.has_zero_terminal_snr()) {
        throw input_error("noise schedule: epsilon cannot be predicted with zero terminal SNR, because the last step "
                          "is all noise: predict v or the sample");
    }
}

/// Clean image implied by a prediction for x_t = a x0 + s noise: (x_t - s eps) / a, a x_t - s v, or the prediction.
template <std::floating_point T>
void predicted_x0(double a, double s, prediction_type type, std::span<const T> x_t, std::span<const T> prediction,
                  std::span<T> x0) noexcept {
    switch (type) {
    case prediction_type::epsilon: detail::combine(1.0 / a, x_t.data(), -s / a, prediction.data(), x0); break;
    case prediction_type::velocity: detail::combine(a, x_t.data(), -s, prediction.data(), x0); break;
    case prediction_type::sample: std::copy(prediction.begin(), prediction.end(), x0.begin()); break;
    }
}
template <std::floating_point T>
void predicted_x0(const noise_schedule& schedule, prediction_type type, int t, std::span<const T> x_t,
                  std::span<const T> prediction, std::span<T> x0) noexcept {
    predicted_x0(schedule.signal(t), schedule.sigma(t), type, x_t, prediction, x0);
}

/// Noise in x_t, given its clean image x0: (x_t - a x0) / s.
template <std::floating_point T>
void noise_of(const noise_schedule& schedule, int t, std::span<const T> x_t, std::span<const T> x0,
              std::span<T> noise) noexcept {
    const double s = schedule.sigma(t);
    detail::combine(1.0 / s, x_t.data(), -schedule.signal(t) / s, x0.data(), noise);
}

/// Noise implied by a prediction: eps itself, s x_t + a v, or (x_t - a x0) / s.
template <std::floating_point T>
void predicted_noise(const noise_schedule& schedule, prediction_type type, int t, std::span<const T> x_t,
                     std::span<const T> prediction, std::span<T> noise) noexcept {
    switch (type) {
    case prediction_type::epsilon: std::copy(prediction.begin(), prediction.end(), noise.begin()); break;
    case prediction_type::velocity:
        detail::combine(schedule.sigma(t), x_t.data(), schedule.signal(t), prediction.data(), noise);
        break;
    case prediction_type::sample: noise_of(schedule, t, x_t, prediction, noise); break;
    }
}

} // namespace pulse::train
