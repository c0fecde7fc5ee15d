#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/edm.hpp>
#include <pulse/train/flow.hpp>
#include <pulse/train/noise_process.hpp>
#include <pulse/train/noise_schedule.hpp>

namespace pulse::train {

/// How the betas rise; diffusers' names in quotes.
enum class beta_shape : std::uint8_t {
    linear,         ///< "linear"
    scaled_linear,  ///< "scaled_linear": their square roots rise evenly
    squared_cosine, ///< "squaredcos_cap_v2": alphas_cumprod falls along a squared cosine, ignoring the end values
    sigmoid         ///< "sigmoid": they rise along the logistic function
};

/// Which training times a sampler visits (Lin et al., arXiv 2305.08891, table 2).
enum class timestep_spacing : std::uint8_t {
    leading,  ///< multiples of a whole stride from steps_offset on
    trailing, ///< falling from the last time
    linspace  ///< evenly from the first time to the last, rounded
};

/// Settings of a diffusers scheduler_config.json. Names are its keys, except where a comment gives the key; defaults
/// are DDIMScheduler's, for keys that the file lacks.
///
/// These settings decide what is trained and how pulse draws. Other keys (thresholding, use_karras_sigmas, solver_order
/// and so on) ask for ways of drawing that pulse does not have.
struct scheduler_settings {
    int train_steps{1000};                ///< num_train_timesteps
    beta_shape betas{beta_shape::linear}; ///< beta_schedule
    double beta_start{1e-4};
    double beta_end{0.02};
    std::vector<double> trained_betas{};                  ///< if not empty, all of the betas
    bool zero_terminal_snr{};                             ///< rescale_betas_zero_snr
    prediction_type prediction{prediction_type::epsilon}; ///< prediction_type: epsilon, v_prediction or sample
    timestep_spacing spacing{timestep_spacing::leading}; ///< timestep_spacing; of DPMSolverMultistepScheduler: linspace
    int steps_offset{};                                  ///< added to the times of `leading`
    bool set_alpha_to_one{true};                         ///< DDIM ends at a clean image, not at the level of time 0
    bool clip_sample{true};                              ///< DDIM clips its estimates of the image
    double clip_sample_range{1.0};                       ///< to [-this, this]
    /// How noise is added if not by betas; at most one is set.
    std::optional<rectified_flow> flow{};
    std::optional<edm_noise> edm{};

    [[nodiscard]] constexpr bool operator==(const scheduler_settings&) const = default;
};

/// The betas of these settings. Throws input_error naming the key that is out of range, on epsilon with zero terminal
/// SNR, and where noise is not added by betas.
[[nodiscard]] inline noise_schedule schedule_of(const scheduler_settings& settings) {
    constexpr int most_steps = 1'000'000;
    const auto require = [](bool holds, const std::string& text) {
        if (!holds) { throw input_error("scheduler settings: " + text); }
    };
    require(!settings.flow && !settings.edm, "flow and EDM have no betas");
    require(settings.train_steps >= 1 && settings.train_steps <= most_steps, "num_train_timesteps must be 1 to " +
                                                                                 std::to_string(most_steps) + ", not " +
                                                                                 std::to_string(settings.train_steps));
    require(settings.steps_offset >= 0 && settings.steps_offset < settings.train_steps,
            "steps_offset must be at least 0 and below num_train_timesteps, not " +
                std::to_string(settings.steps_offset));
    require(settings.clip_sample_range > 0.0, "clip_sample_range must be above 0");
    require(settings.trained_betas.empty() ||
                settings.trained_betas.size() == static_cast<std::size_t>(settings.train_steps),
            "trained_betas must have num_train_timesteps numbers, " + std::to_string(settings.train_steps) + ", not " +
                std::to_string(settings.trained_betas.size()));
    const auto plain = [&] {
        if (!settings.trained_betas.empty()) { return noise_schedule{settings.trained_betas}; }
        switch (settings.betas) {
        case beta_shape::linear:
            return noise_schedule::linear(settings.train_steps, settings.beta_start, settings.beta_end);
        case beta_shape::scaled_linear:
            return noise_schedule::scaled_linear(settings.train_steps, settings.beta_start, settings.beta_end);
        case beta_shape::sigmoid:
            return noise_schedule::sigmoid(settings.train_steps, settings.beta_start, settings.beta_end);
        default: return noise_schedule::cosine(settings.train_steps);
        }
    };
    noise_schedule schedule = settings.zero_terminal_snr ? plain().with_zero_terminal_snr() : plain();
    require_predictable(schedule, settings.prediction);
    return schedule;
}

/// How the settings add noise. Throws input_error as schedule_of, or naming what of flow or EDM is out of range.
[[nodiscard]] inline noise_process process_of(const scheduler_settings& settings) {
    if (settings.flow && settings.edm) { throw input_error("scheduler settings: flow and edm cannot be combined"); }
    if (settings.flow) { return *settings.flow; }
    if (settings.edm) { return *settings.edm; }
    return schedule_of(settings);
}

} // namespace pulse::train
