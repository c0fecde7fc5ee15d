#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

namespace detail {

/// The device on which `timed` exceeds the limit of `problem` by the most bytes, or -1.
[[nodiscard]] constexpr int device_over_limit(const schedule_problem& problem, const schedule& timed) {
    const auto& limit = problem.memory_limit_bytes;
    if (limit.empty()) { return -1; }
    const auto peaks = peak_holds(problem, timed);
    int worst = -1;
    std::int64_t most = 0;
    for (std::size_t d = 0; d != limit.size(); ++d) {
        if (peaks[d] - limit[d] > most) {
            most = peaks[d] - limit[d];
            worst = static_cast<int>(d);
        }
    }
    return worst;
}

/// Throws infeasible_error, naming the order (`who`), device, need and limit, unless `timed` keeps the limits.
constexpr void require_fits_memory(const schedule_problem& problem, const schedule& timed, const char* who) {
    const int worst = device_over_limit(problem, timed);
    if (worst < 0) { return; }
    const auto d = static_cast<std::size_t>(worst);
    throw infeasible_error(std::string{who} + ": device " + std::to_string(worst) + " needs " +
                           std::to_string(peak_holds(problem, timed)[d]) + " bytes but has only " +
                           std::to_string(problem.memory_limit_bytes[d]));
}

} // namespace detail

/// Whether `timed` keeps the memory limits of `problem`.
[[nodiscard]] constexpr bool fits_memory(const schedule_problem& problem, const schedule& timed) {
    return detail::device_over_limit(problem, timed) < 0;
}

} // namespace pulse
