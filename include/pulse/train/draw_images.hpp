#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/edm.hpp>
#include <pulse/train/flow.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/sampler.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::train {

/// How images are drawn when noise is added by betas. Flow and EDM use Euler's method, as diffusers'
/// FlowMatchEulerDiscreteScheduler and EDMEulerScheduler do.
enum class sampler_kind : std::uint8_t {
    ddim,      ///< diffusers' DDIMScheduler, eta 0
    dpm_solver ///< diffusers' DPMSolverMultistepScheduler, DPM-Solver++(2M), midpoint, last step of order 1
};

/// How many steps a sampler takes, and which images it draws.
struct drawing_options {
    sampler_kind kind = sampler_kind::ddim;
    int steps = 50;
    std::uint64_t seed = 0;
    std::uint64_t first_sample = 0; ///< number of the first image: image k depends on k alone
    std::int64_t pixels = 0;        ///< in an image; a flow that is shifted by size needs it
};

/// The levels that diffusers' FlowMatchEulerDiscreteScheduler and EDMEulerScheduler visit. Throws input_error unless
/// `count` is 1 to their number of training times.
[[nodiscard]] inline std::vector<noise_level> sampling_levels(const rectified_flow& flow, int count,
                                                              std::int64_t pixels) {
    detail::require_steps(count, flow.train_steps);
    if (flow.by_size && pixels <= 0) {
        throw input_error("sampler: pixels must be at least 1 for a flow that is shifted by size");
    }
    // diffusers shifts the last level of a flow with a fixed shift twice: here, and below with all others.
    const double first = 1.0 / flow.train_steps;
    const double last = flow.by_size ? first : flow.shifted(first, pixels);
    std::vector<noise_level> levels;
    for (int i = 0; i != count; ++i) {
        const double u = 1 + (last - 1) * (count == 1 ? 0.0 : i / (count - 1.0));
        levels.push_back(flow.at(flow.shifted(u, pixels)));
    }
    return levels;
}
[[nodiscard]] inline std::vector<noise_level> sampling_levels(const edm_noise& edm, int count) {
    detail::require_steps(count, edm.train_steps);
    std::vector<noise_level> levels;
    for (int i = 0; i != count; ++i) {
        levels.push_back(edm.of(edm.strength_at(count == 1 ? 0.0 : i / (count - 1.0))));
    }
    return levels;
}

/// The steps that diffusers' scheduler takes with these settings.
///
/// DDIM steps down by the integer stride from each time, which is not always the next time visited. Throws input_error
/// when `count` steps do not fit between the settings' times.
[[nodiscard]] inline std::vector<sampling_step> sampling_steps(const scheduler_settings& settings, sampler_kind kind,
                                                               int count) {
    const bool ddim = kind == sampler_kind::ddim;
    const int total = settings.train_steps;
    const auto refuse = [&] {
        throw input_error("sampler: " + std::to_string(count) + " steps do not fit into " + std::to_string(total) +
                          " training timesteps");
    };
    if (count < 1 || count > total) { refuse(); }
    // DPM-Solver spaces one time more than it takes steps, and drops the last.
    const int points = ddim ? count : count + 1;
    const auto time_of = [&](int i) {
        const auto at = static_cast<double>(i);
        switch (settings.spacing) {
        case timestep_spacing::leading: return (points - 1 - i) * (total / points) + settings.steps_offset;
        case timestep_spacing::trailing:
            return static_cast<int>(std::nearbyint(total - at * (static_cast<double>(total) / count))) - 1;
        default:
            return static_cast<int>(
                std::nearbyint((points - 1 - at) * (static_cast<double>(total - 1) / std::max(1, points - 1))));
        }
    };
    std::vector<sampling_step> steps;
    for (int i = 0; i != count; ++i) {
        const int time = time_of(i);
        if (time < 0 || time >= (steps.empty() ? total : steps.back().time)) { refuse(); }
        steps.push_back({time, -1});
    }
    for (std::size_t i = 0; i != steps.size(); ++i) {
        if (ddim) {
            steps[i].next = steps[i].time - total / count;
        } else if (i + 1 != steps.size()) {
            steps[i].next = steps[i + 1].time;
        }
    }
    return steps;
}

namespace detail {

/// Moves images along the steps with DPM-Solver++(2M). Source: Lu et al. (arXiv 2211.01095), algorithm 2.
inline void dpm_solver_walk(const noise_schedule& schedule, prediction_type type, std::span<const sampling_step> steps,
                            std::size_t samples, std::span<float> images, const predictor& predict) {
    // With no signal a step would be infinitely long: as diffusers does, keep 2^-24, the smallest fp16 above 0.
    const auto bar_at = [&](int t) {
        const double bar = schedule.alpha_cumprod(t);
        return bar > 0.0 ? bar : 0x1p-24;
    };
    const auto half_log_snr = [](double bar) { return 0.5 * std::log(bar / (1.0 - bar)); };
    const std::size_t elements = images.size();
    std::vector<float> answer(elements);
    std::vector<float> x0(elements);
    std::vector<float> x0_before(elements);
    std::vector<float> batch_times(samples);
    double step_before = 0.0;
    for (std::size_t i = 0; i != steps.size(); ++i) {
        std::fill(batch_times.begin(), batch_times.end(), static_cast<float>(steps[i].time));
        predict(images, batch_times, answer);
        const double bar = bar_at(steps[i].time);
        predicted_x0<float>(std::sqrt(bar), std::sqrt(1.0 - bar), type, images, answer, x0);
        if (i + 1 == steps.size()) {
            std::copy(x0.begin(), x0.end(), images.begin());
            return;
        }
        const double bar_next = bar_at(steps[i].next);
        const double step = half_log_snr(bar_next) - half_log_snr(bar);
        const auto kept = static_cast<float>(std::sqrt((1.0 - bar_next) / (1.0 - bar)));
        const double share = -std::sqrt(bar_next) * std::expm1(-step);
        const double slope = i == 0 ? 0.0 : 0.5 * step / step_before;
        const auto now = static_cast<float>(share * (1.0 + slope));
        const auto before = static_cast<float>(-share * slope);
        for (std::size_t e = 0; e != elements; ++e) {
            images[e] = kept * images[e] + now * x0[e] + before * x0_before[e];
        }
        step_before = step;
        std::swap(x0, x0_before);
    }
}

} // namespace detail

/// Draws `samples` images of `images.size() / samples` elements each into `images`, from normal noise of (seed, sample
/// number), as diffusers does with the settings. Throws input_error on settings or options out of range.
inline void draw_images(const scheduler_settings& settings, const drawing_options& options, std::size_t samples,
                        std::span<float> images, const predictor& predict) {
    if (settings.flow || settings.edm) {
        static_cast<void>(process_of(settings));
        const auto levels = settings.flow ? sampling_levels(*settings.flow, options.steps, options.pixels)
                                          : sampling_levels(*settings.edm, options.steps);
        detail::start_images(options.seed, options.first_sample, samples, images);
        // EDM starts at standard deviation sqrt(sigma_max^2 + 1), which counts an image of deviation 1.
        const double first = settings.edm ? std::hypot(settings.edm->sigma_max, 1.0) * levels.front().signal : 1.0;
        for (float& value : images) { value *= static_cast<float>(first); }
        return detail::euler_walk(levels, samples, images, predict);
    }
    const noise_schedule schedule = schedule_of(settings);
    const auto steps = sampling_steps(settings, options.kind, options.steps);
    detail::start_images(options.seed, options.first_sample, samples, images);
    if (options.kind == sampler_kind::dpm_solver) {
        detail::dpm_solver_walk(schedule, settings.prediction, steps, samples, images, predict);
        return;
    }
    const detail::ddim_rules rules{.clip = settings.clip_sample ? static_cast<float>(settings.clip_sample_range) : 0.0F,
                                   .last_alpha_cumprod = settings.set_alpha_to_one ? 1.0 : schedule.alpha_cumprod(0)};
    detail::ddim_walk(schedule, {.prediction = settings.prediction}, rules, steps, samples, images, predict);
}

} // namespace pulse::train
