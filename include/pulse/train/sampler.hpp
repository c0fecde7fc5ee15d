#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/train/noise_level.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>

namespace pulse::train {

/// The network as a sampler sees it: reads x of all samples and each sample's time, writes all answers. Each call runs
/// a whole network, so the indirect call costs nothing.
using predictor = std::function<void(std::span<const float> x, std::span<const float> times, std::span<float> answer)>;

/// How images are drawn.
struct ddim_options {
    int steps = 50;      ///< network evaluations, 1 to the schedule's steps
    bool clip_x0 = true; ///< keep each estimate of the image in [-1, 1]
    prediction_type prediction = prediction_type::epsilon;
    std::uint64_t seed = 0;
    std::uint64_t first_sample = 0; ///< number of the first image: image k depends on k alone
};

/// One evaluation of the network at `time`; the images then have the noise of time `next`; below 0: the end.
struct sampling_step {
    int time{};
    int next{};

    [[nodiscard]] constexpr bool operator==(const sampling_step&) const = default;
};

namespace detail {

/// Throws input_error unless `count` is 1 to the number of training steps.
inline void require_steps(int count, int total) {
    if (count < 1 || count > total) {
        throw input_error("sampler: steps must be 1 to " + std::to_string(total) + ", not " + std::to_string(count));
    }
}

} // namespace detail

/// Times visited: decreasing, evenly spaced, starting at the last one.
///
/// The "trailing" spacing of Lin et al. (arXiv 2305.08891): it starts where the noise is strongest. Throws input_error
/// when `count` is not in 1 to the schedule's steps.
[[nodiscard]] inline std::vector<int> ddim_timesteps(const noise_schedule& schedule, int count) {
    const int total = schedule.steps();
    detail::require_steps(count, total);
    std::vector<int> times(static_cast<std::size_t>(count));
    const double stride = static_cast<double>(total) / static_cast<double>(count);
    for (int i = 0; i != count; ++i) {
        times[static_cast<std::size_t>(i)] = static_cast<int>(std::lround(static_cast<double>(total) - i * stride)) - 1;
    }
    return times;
}

namespace detail {

/// Fills `samples` images with normal noise of (seed, sample number). Throws input_error unless they are whole images.
inline void start_images(std::uint64_t seed, std::uint64_t first_sample, std::size_t samples, std::span<float> images) {
    if (samples == 0 || images.size() % samples != 0) {
        throw input_error("sampler: " + std::to_string(images.size()) + " elements cannot be split into " +
                          std::to_string(samples) + " images");
    }
    random_source{seed, random_stream::sample_start}.fill_normal(first_sample * (images.size() / samples), images);
}

/// How the DDIM samplers differ.
struct ddim_rules {
    float clip{};                   ///< clamps each estimate of the image to [-clip, clip]; 0: no clamp
    bool refit_noise{};             ///< recompute the noise from the clipped image instead of from the network's answer
    double last_alpha_cumprod{1.0}; ///< of the images at the end
};

/// Moves images along the steps with DDIM (Song, Meng, Ermon 2021, equation 12).
inline void ddim_walk(const noise_schedule& schedule, const ddim_options& options, const ddim_rules& rules,
                      std::span<const sampling_step> steps, std::size_t samples, std::span<float> images,
                      const predictor& predict) {
    const std::size_t elements = images.size();
    std::vector<float> answer(elements);
    std::vector<float> x0(elements);
    std::vector<float> noise(elements);
    std::vector<float> batch_times(samples);
    for (const auto [t, next] : steps) {
        std::fill(batch_times.begin(), batch_times.end(), static_cast<float>(t));
        predict(images, batch_times, answer);

        const std::span<const float> x_t{images};
        predicted_x0<float>(schedule, options.prediction, t, x_t, answer, x0);
        if (rules.clip > 0.0F && rules.refit_noise) {
            for (float& x : x0) { x = std::clamp(x, -rules.clip, rules.clip); }
            noise_of<float>(schedule, t, x_t, x0, noise);
        } else {
            predicted_noise<float>(schedule, options.prediction, t, x_t, answer, noise);
            if (rules.clip > 0.0F) {
                for (float& x : x0) { x = std::clamp(x, -rules.clip, rules.clip); }
            }
        }

        const double bar_next = next < 0 ? rules.last_alpha_cumprod : schedule.alpha_cumprod(next);
        const auto kept = static_cast<float>(std::sqrt(1.0 - bar_next));
        const auto signal = static_cast<float>(std::sqrt(bar_next));
        for (std::size_t e = 0; e != elements; ++e) { images[e] = signal * x0[e] + kept * noise[e]; }
    }
}

/// Moves images from level to level with Euler's method, until no noise is left: the image and noise that an answer
/// implies are mixed at the next level.
inline void euler_walk(std::span<const noise_level> levels, std::size_t samples, std::span<float> images,
                       const predictor& predict) {
    std::vector<float> answer(images.size());
    std::vector<float> x0(images.size());
    std::vector<float> noise(images.size());
    std::vector<float> batch_times(samples);
    for (std::size_t i = 0; i != levels.size(); ++i) {
        std::fill(batch_times.begin(), batch_times.end(), static_cast<float>(levels[i].time));
        predict(images, batch_times, answer);
        read_answer<float>(levels[i], images, answer, x0, noise);
        add_noise<float>(i + 1 == levels.size() ? noise_level{} : levels[i + 1], x0, noise, images);
    }
}

} // namespace detail

/// Draws `samples` images of `images.size() / samples` elements each into `images`.
///
/// Starts from normal noise of (seed, sample number) and walks the times with DDIM. With `clip_x0` the noise estimate
/// is made consistent with the clipped image. Throws input_error on options out of range.
inline void ddim_sample(const noise_schedule& schedule, const ddim_options& options, std::size_t samples,
                        std::span<float> images, const predictor& predict) {
    require_predictable(schedule, options.prediction);
    const auto times = ddim_timesteps(schedule, options.steps);
    std::vector<sampling_step> steps;
    for (std::size_t i = 0; i != times.size(); ++i) {
        steps.push_back({times[i], i + 1 < times.size() ? times[i + 1] : -1});
    }
    detail::start_images(options.seed, options.first_sample, samples, images);
    detail::ddim_walk(schedule, options, {.clip = options.clip_x0 ? 1.0F : 0.0F, .refit_noise = true}, steps, samples,
                      images, predict);
}

} // namespace pulse::train
