#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// What a schedule can do wrong, in the order in which it is looked for.
enum class schedule_rule : std::uint8_t {
    none,
    device_count, ///< one list per device
    unknown_pass, ///< stage, microbatch or pass that the problem does not have
    wrong_device, ///< a stage runs where it lives
    repeated,     ///< a pass is listed once
    missing,      ///< every pass is listed
    start,        ///< starts are finite and not negative
    duration,     ///< end - start is what the problem says
    sorted,       ///< a device's list is ordered by start
    overlap,      ///< one pass at a time per device
    fifo,         ///< a stage runs a kind of pass in microbatch order, so that gradients are summed in one order
    dependency,   ///< nothing starts before what it needs has ended and arrived
    memory,       ///< holds stay within the limit of the device
};

/// The first rule that a schedule breaks, and where.
struct schedule_violation {
    schedule_rule rule{schedule_rule::none};
    int device{};
    timed_pass at{};
    /// The other pass in it: the repeated, overlapping, earlier one, or the one depended upon.
    timed_pass other{};
    /// What was found and what would be right: microseconds, bytes or a count.
    double found{};
    double wanted{};

    [[nodiscard]] constexpr bool broken() const noexcept { return rule != schedule_rule::none; }
};

/// Slack of every comparison of times: 1e-9 of the makespan (sums of doubles in another order), at least 1e-9 us.
[[nodiscard]] constexpr double time_tolerance_us(const schedule& timed) noexcept {
    const double last = timed.makespan_us();
    return last > 1 ? 1e-9 * last : 1e-9;
}

namespace detail {

/// Held bytes of one device at each of its passes, walking its list: what begins at a pass counts from its start, what
/// ends with it until its end. Since passes of a device do not overlap, these are all the levels that ever occur.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> hold_levels(const schedule_problem& problem,
                                                                    const std::vector<timed_pass>& passes, int device);

} // namespace detail

/// Most bytes that the holds of `problem` take on each device. Requires a schedule without violation but of memory.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_holds(const schedule_problem& problem,
                                                                   const schedule& timed);

/// Idle time of the devices over P x makespan; 0 for an empty schedule.
[[nodiscard]] PULSE_CONSTEXPR double bubble_ratio(const schedule_problem& problem, const schedule& timed);

/// The first rule of `schedule_rule` that `timed` breaks; `none` when it is a schedule of `problem`.
///
/// Reads nothing but the problem, so it can judge every scheduler. Times are compared with `time_tolerance_us`.
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
