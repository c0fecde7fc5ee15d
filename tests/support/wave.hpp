#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/train/task.hpp>

namespace pulse::test {

/// Shared by test tasks: values that depend only on the sample, and the mean squared error.
struct wave {
    [[nodiscard]] static float value(std::uint64_t sample, std::size_t i) {
        return std::sin(0.7F * static_cast<float>(sample) + 0.3F * static_cast<float>(i));
    }
    template <class B>
    void input(const work<B>& at, std::span<float> x) const {
        for (std::size_t i = 0; i != x.size(); ++i) { x[i] = value(at.first_sample, i); }
    }
    template <class B>
    void loss(const work<B>& at, std::span<const float> y, std::span<float> dy) const {
        const auto n = static_cast<float>(static_cast<std::size_t>(at.step_samples) * y.size());
        for (std::size_t i = 0; i != y.size(); ++i) {
            const float off = y[i] - value(at.first_sample + 1000, i);
            dy[i] = 2 * off / n;
            *at.loss += static_cast<double>(off) * static_cast<double>(off) / static_cast<double>(n);
        }
    }
};

} // namespace pulse::test
