#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// Noise of any strength: y = x0 + strength eps. The network reads y / sqrt(strength^2 + sigma_data^2) and the time
/// ln(strength) / 4; x0 = c_skip y + c_out answer. Names are the keys of diffusers' EDMEulerScheduler, except where a
/// comment gives the key.
///
/// Source: Karras et al., "Elucidating the design space of diffusion-based generative models" (arXiv 2206.00364), table
/// 1: its loss weight, 1 / c_out^2, makes the loss the plain mean squared error of the answer.
struct edm_noise {
    int train_steps{1000}; ///< num_train_timesteps
    double sigma_min{0.002};
    double sigma_max{80.0};
    double sigma_data{0.5}; ///< standard deviation of the images
    double rho{7.0};
    bool velocity{}; ///< prediction_type v_prediction: the answer has the opposite sign
    /// Training only: ln(strength) of a sample is normal, with this mean and deviation.
    double log_mean{-1.2};
    double log_deviation{1.2};

    [[nodiscard]] constexpr bool operator==(const edm_noise&) const = default;

    [[nodiscard]] noise_level of(double strength) const noexcept {
        const double whole = std::hypot(strength, sigma_data);
        const double sign = velocity ? -1 : 1;
        return {1 / whole, strength / whole, std::log(strength) / 4, sign * strength / (sigma_data * whole),
                -sign * sigma_data / whole};
    }
    /// Strength at fraction `part` of the way from sigma_max (0) to sigma_min (1); equation 5.
    [[nodiscard]] double strength_at(double part) const noexcept {
        const double from = std::pow(sigma_max, 1 / rho);
        return std::pow(from + part * (std::pow(sigma_min, 1 / rho) - from), rho);
    }
    /// Level of timestep t of train_steps.
    [[nodiscard]] noise_level at(int t) const noexcept {
        return of(strength_at((train_steps - 1.0 - t) / train_steps));
    }
    /// Level of the training sample at a global position.
    [[nodiscard]] noise_level drawn(std::uint64_t seed, std::uint64_t position) const {
        const random_source chance{seed, random_stream::timesteps};
        return of(std::exp(log_mean + log_deviation * static_cast<double>(chance.normal(position))));
    }
};

/// Throws input_error naming what is out of range.
inline void require_in_range(const edm_noise& edm) {
    const auto require = [](bool holds, const char* text) {
        if (!holds) { throw input_error{std::string{"EDM: "} + text}; }
    };
    require(edm.train_steps >= 1 && edm.train_steps <= 1'000'000, "num_train_timesteps must be 1 to 1000000");
    require(edm.sigma_min > 0 && edm.sigma_min < edm.sigma_max && std::isfinite(edm.sigma_max),
            "sigma_min must be above 0 and below sigma_max, which must be finite");
    require(edm.sigma_data > 0 && std::isfinite(edm.sigma_data), "sigma_data must be above 0 and finite");
    require(edm.rho > 0 && std::isfinite(edm.rho), "rho must be above 0 and finite");
    require(std::abs(edm.log_mean) <= 10 && edm.log_deviation > 0 && edm.log_deviation <= 5,
            "ln(sigma) must have a mean from -10 to 10 and a deviation above 0, up to 5");
}

} // namespace pulse::train
