#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <pulse/train/noise_schedule.hpp>

namespace pulse::test {

/// The exact network for a data set of one image.
struct knows_the_image {
    train::noise_schedule schedule;
    train::prediction_type type;
    std::vector<float> image;

    void operator()(std::span<const float> x, std::span<const float> times, std::span<float> answer) const {
        const std::size_t size = image.size();
        std::vector<float> noise(size);
        for (std::size_t n = 0; n != times.size(); ++n) {
            const int t = static_cast<int>(times[n]);
            train::noise_of<float>(schedule, t, x.subspan(n * size, size), image, noise);
            train::training_target<float>(schedule.at(t, type), image, noise, answer.subspan(n * size, size));
        }
    }
};

/// The exact network for images drawn from N(0, variance): E[eps | x_t], which is linear in x_t.
struct knows_the_gaussian {
    train::noise_schedule schedule;
    double variance;

    void operator()(std::span<const float> x, std::span<const float> times, std::span<float> answer) const {
        const double bar = schedule.alpha_cumprod(static_cast<int>(times[0]));
        const double factor = std::sqrt(1 - bar) / (bar * variance + 1 - bar);
        for (std::size_t i = 0; i != x.size(); ++i) {
            answer[i] = static_cast<float>(factor * static_cast<double>(x[i]));
        }
    }
};

} // namespace pulse::test
