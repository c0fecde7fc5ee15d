#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>

#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// The largest time that divides all durations and lags of `problem`, microseconds; 0 when there is none of at least
/// 2^-20 us, or all are 0.
///
/// A schedule in which every pass starts as early as its order allows ends after a sum of durations and lags: so the
/// least makespan is a multiple of the grain.
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

/// The same for times of about `makespan_us`: 0 also where the grain is finer than they can be told apart.
[[nodiscard]] inline double time_grain_us(const schedule_problem& problem, double makespan_us) {
    const double grain = time_grain_us(problem);
    return grain < 1e-9 * makespan_us ? 0.0 : grain;
}

/// The least makespan that is longer than `cutoff_us`: the next multiple of `grain_us`; where the grain is 0, no more
/// is known than `cutoff_us`.
[[nodiscard]] inline double least_after(double cutoff_us, double grain_us) {
    return grain_us > 0 ? grain_us * (std::floor(cutoff_us / grain_us) + 1) : cutoff_us;
}

/// The longest cutoff that leaves out `makespan_us` and nothing shorter: two makespans differ by the grain at least;
/// where it is 0, by what `synthesis::proved` tells apart.
[[nodiscard]] constexpr double cutoff_below(double makespan_us, double grain_us) noexcept {
    return grain_us > 0 ? makespan_us - grain_us / 2 : makespan_us * (1 - 5e-10);
}

/// The least multiple of `grain_us` that is not below `time_us`, up to the rounding of sums; `time_us` when the grain
/// is 0 or too fine to count.
[[nodiscard]] constexpr double raised_to_grain(double time_us, double grain_us) noexcept {
    if (!(grain_us > 0) || !(time_us / grain_us < 0x1p50)) { return time_us; }
    const double steps = time_us / grain_us;
    const auto below = static_cast<std::int64_t>(steps);
    const double rest = steps - static_cast<double>(below);
    return grain_us * static_cast<double>(rest > 1e-9 * (1 + steps) ? below + 1 : below);
}

} // namespace pulse::detail
