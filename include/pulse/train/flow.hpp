#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// Distribution of training times over (0, 1).
enum class time_density : std::uint8_t {
    uniform,
    logit_normal ///< the logistic function of a normal number
};

/// Rectified flow: x = (1 - s) x0 + s eps for s in (0, 1]. The network reads train_steps s and answers eps - x0. Names
/// are the keys of diffusers' FlowMatchEulerDiscreteScheduler, except where a comment gives the key.
///
/// Source: Liu et al. (arXiv 2209.03003); times and shift as in Esser et al. (arXiv 2403.03206), sections 3.1 and 5.3.
struct rectified_flow {
    int train_steps{1000}; ///< num_train_timesteps: also the time that the network reads for s = 1
    /// Moves times towards more noise: s = shift u / (1 + (shift - 1) u).
    double shift{1.0};
    /// use_dynamic_shifting: the shift depends on the image size. Its logarithm is linear in the pixels: base_shift at
    /// 4 base_image_seq_len latent pixels, max_shift at 4 max_image_seq_len.
    bool by_size{};
    double base_shift{0.5};
    double max_shift{1.15};
    int base_image_seq_len{256};
    int max_image_seq_len{4096};
    /// Training only, not in scheduler_config.json: distribution of u, and of the normal number behind it.
    time_density times{time_density::logit_normal};
    double time_mean{0.0};
    double time_deviation{1.0};

    [[nodiscard]] constexpr bool operator==(const rectified_flow&) const = default;

    /// Shift for samples of `pixels` pixels.
    [[nodiscard]] double shift_of(std::int64_t pixels) const noexcept {
        if (!by_size) { return shift; }
        const double slope = (max_shift - base_shift) / (max_image_seq_len - base_image_seq_len);
        return std::exp(base_shift + slope * (static_cast<double>(pixels) / 4 - base_image_seq_len));
    }
    [[nodiscard]] double shifted(double u, std::int64_t pixels) const noexcept {
        const double by = shift_of(pixels);
        return by * u / (1 + (by - 1) * u);
    }
    [[nodiscard]] noise_level at(double s) const noexcept { return {1 - s, s, train_steps * s, -1, 1}; }
    /// Level of timestep t of train_steps.
    [[nodiscard]] noise_level at(int t, std::int64_t pixels) const noexcept {
        return at(shifted((t + 1.0) / train_steps, pixels));
    }
    /// Level of the training sample at a global position.
    [[nodiscard]] noise_level drawn(std::uint64_t seed, std::uint64_t position, std::int64_t pixels) const {
        const random_source chance{seed, random_stream::timesteps};
        if (times == time_density::uniform) { return at(shifted(1 - chance.uniform(position), pixels)); }
        const double normal = time_mean + time_deviation * static_cast<double>(chance.normal(position));
        return at(shifted(1 / (1 + std::exp(-normal)), pixels));
    }
};

/// Throws input_error naming what is out of range.
inline void require_in_range(const rectified_flow& flow) {
    const auto require = [](bool holds, const char* text) {
        if (!holds) { throw input_error{std::string{"rectified flow: "} + text}; }
    };
    require(flow.train_steps >= 1 && flow.train_steps <= 1'000'000, "num_train_timesteps must be 1 to 1000000");
    require(flow.shift > 0 && std::isfinite(flow.shift), "shift must be above 0 and finite");
    require(flow.base_image_seq_len < flow.max_image_seq_len, "base_image_seq_len must be below max_image_seq_len");
    require(std::abs(flow.base_shift) <= 10 && std::abs(flow.max_shift) <= 10,
            "base_shift and max_shift must be from -10 to 10");
    require(std::abs(flow.time_mean) <= 10 && flow.time_deviation > 0 && flow.time_deviation <= 5,
            "times must have a mean from -10 to 10 and a deviation above 0, up to 5");
}

} // namespace pulse::train
