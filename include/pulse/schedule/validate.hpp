#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The rules that a schedule must keep, in the order in which they are checked.
enum class schedule_rule : std::uint8_t {
    none,
    device_count, ///< one list per device
    unknown_pass, ///< no stage, microbatch or pass that the problem lacks
    wrong_device, ///< a stage runs on its own device
    repeated,     ///< a pass is listed once
    missing,      ///< every pass is listed
    start,        ///< starts are finite and not negative
    duration,     ///< end - start is the problem's duration
    sorted,       ///< a device's list is ordered by start
    overlap,      ///< one pass at a time per device
    fifo,         ///< a stage runs a kind of pass in microbatch order, so that gradients are summed in one order
    dependency,   ///< no pass starts before its inputs have been computed and have arrived
    memory,       ///< holds stay within the device's limit
};

/// The first rule that a schedule breaks, and where.
struct schedule_violation {
    schedule_rule rule{schedule_rule::none};
    int device{};
    timed_pass at{};
    /// The other pass involved: the repeated, overlapping or earlier pass, or the one depended on.
    timed_pass other{};
    /// The value found and the value expected: microseconds, bytes or a count.
    double found{};
    double wanted{};

    [[nodiscard]] constexpr bool broken() const noexcept { return rule != schedule_rule::none; }
};

/// Tolerance of every comparison of times: 1e-9 of the makespan (sums of doubles in another order), at least 1e-9 us.
[[nodiscard]] constexpr double time_tolerance_us(const schedule& timed) noexcept {
    const double last = timed.makespan_us();
    return last > 1 ? 1e-9 * last : 1e-9;
}

namespace detail {

/// Bytes held on a device during each of its passes. A hold counts from the pass that begins it up to and including the
/// later of the two that end it. Passes of a device do not overlap, so no other levels occur.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> hold_levels(const schedule_problem& problem,
                                                                    const std::vector<timed_pass>& passes, int device);

} // namespace detail

/// Most bytes that the holds of `problem` take on each device. Requires a schedule that breaks no rule but memory.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_holds(const schedule_problem& problem,
                                                                   const schedule& timed);

/// Idle time of the devices divided by P x makespan; 0 for an empty schedule.
[[nodiscard]] PULSE_CONSTEXPR double bubble_ratio(const schedule_problem& problem, const schedule& timed);

/// The first rule of `schedule_rule` that `timed` breaks; `none` when it is a schedule of `problem`.
///
/// Reads only the problem, so it can judge any scheduler. Times are compared with `time_tolerance_us`.
[[nodiscard]] PULSE_CONSTEXPR schedule_violation find_violation(const schedule_problem& problem, const schedule& timed);

/// True when `timed` is a schedule of `problem`.
[[nodiscard]] PULSE_CONSTEXPR bool is_valid(const schedule_problem& problem, const schedule& timed);

/// The violation in one sentence; empty when there is none.
[[nodiscard]] PULSE_INLINE std::string describe(const schedule_violation& v);

/// Throws input_error with the first violation in words; returns when `timed` is a schedule of `problem`.
PULSE_CONSTEXPR void validate(const schedule_problem& problem, const schedule& timed);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/validate.ipp> // IWYU pragma: keep
#endif
