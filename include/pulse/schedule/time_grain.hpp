#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>

#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// The largest time that divides all durations and lags of `problem`, microseconds; 0 when there is none of at least
/// 2^-20 us, or when all are 0.
///
/// If every pass starts as early as its order allows, the schedule ends after a sum of durations and lags, so the least
/// makespan is a multiple of the grain.
[[nodiscard]] constexpr double time_grain_us(const schedule_problem& problem) {
    constexpr double scale = 0x1p20;
    std::int64_t grain = 0;
    bool whole = true;
    const auto take = [&](double time) {
        const double scaled = time * scale;
        if (!(scaled < 0x1p62)) {
            whole = false;
            return;
        }
        const auto units = static_cast<std::int64_t>(scaled);
        whole = whole && static_cast<double>(units) == scaled;
        grain = std::gcd(grain, units);
    };
    for (const auto& s : problem.stages) {
        take(s.forward_us);
        take(s.backward_input_us);
        if (problem.split_backward) { take(s.backward_weight_us); }
    }
    for (const auto& d : problem.dependencies) { take(d.lag_us); }
    return whole ? static_cast<double>(grain) / scale : 0.0;
}

/// The same for times of about `makespan_us`: also 0 where the grain is too fine to tell such times apart.
[[nodiscard]] inline double time_grain_us(const schedule_problem& problem, double makespan_us) {
    const double grain = time_grain_us(problem);
    return grain < 1e-9 * makespan_us ? 0.0 : grain;
}

/// The least makespan above `cutoff_us`: the next multiple of `grain_us`. With a grain of 0, only `cutoff_us` itself is
/// known.
[[nodiscard]] inline double least_after(double cutoff_us, double grain_us) {
    return grain_us > 0 ? grain_us * (std::floor(cutoff_us / grain_us) + 1) : cutoff_us;
}

/// A cutoff that excludes `makespan_us` but nothing shorter: half a grain below it, since two makespans differ by at
/// least the grain. With a grain of 0, it lies within the tolerance of `synthesis::proved`.
[[nodiscard]] constexpr double cutoff_below(double makespan_us, double grain_us) noexcept {
    return grain_us > 0 ? makespan_us - grain_us / 2 : makespan_us * (1 - 5e-10);
}

/// Rounds `time_us` up to a multiple of `grain_us`, allowing for the rounding of sums; returns `time_us` when the grain
/// is 0 or too fine to count.
[[nodiscard]] constexpr double raised_to_grain(double time_us, double grain_us) noexcept {
    if (!(grain_us > 0) || !(time_us / grain_us < 0x1p50)) { return time_us; }
    const double steps = time_us / grain_us;
    const auto below = static_cast<std::int64_t>(steps);
    const double rest = steps - static_cast<double>(below);
    return grain_us * static_cast<double>(rest > 1e-9 * (1 + steps) ? below + 1 : below);
}

} // namespace pulse::detail
