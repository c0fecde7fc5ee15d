#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The rules that frozen tasks must keep beside a valid schedule, in the order in which they are checked.
enum class fill_rule : std::uint8_t {
    none,
    device_count, ///< one list per device
    unknown_task, ///< no component, layers or samples that the work lacks, and no device other than the list's
    wrong_device, ///< a device runs only what it has the weights of
    chunk,        ///< a call has 1 to max_chunk samples
    start,        ///< starts are finite and not negative
    duration,     ///< end - start is the sum of the calls
    sorted,       ///< a device's list is ordered by start
    overlap,      ///< one task or pass at a time per device
    repeated,     ///< a layer runs only once on a sample
    missing,      ///< every layer runs on every sample
    chain,        ///< a layer starts after its input has been computed and has arrived
    memory,       ///< holds of passes, live bytes of tasks and paused activations stay within the limit
};

/// The first rule that a fill breaks, and where.
struct fill_violation {
    fill_rule rule{fill_rule::none};
    frozen_task at{};
    /// The other task involved.
    frozen_task other{};
    /// The value found and the value expected: microseconds, bytes or a count.
    double found{};
    double wanted{};

    [[nodiscard]] constexpr bool broken() const noexcept { return rule != fill_rule::none; }
};

/// The first rule of `fill_rule` that `tasks` break beside `passes`, a schedule of `problem`; `none` when each layer of
/// each component runs once on each sample, in order, on a device that has it and within memory.
///
/// Reads only its arguments, so it can judge any filler. Between two tasks of a chain, the device of the first holds
/// the activation until the second starts; if the second runs on another device, that one holds it as well. Times are
/// compared with a tolerance of 1e-9 of the makespan, as for passes.
[[nodiscard]] PULSE_CONSTEXPR fill_violation find_fill_violation(const schedule_problem& problem,
                                                                 const frozen_work& work, const schedule& passes,
                                                                 const std::vector<std::vector<frozen_task>>& tasks);

/// The violation in one sentence; empty when there is none.
[[nodiscard]] PULSE_INLINE std::string describe(const fill_violation& v);

/// Throws input_error with the first violation in words; returns when `passes` is a schedule of `problem` and `tasks`
/// do all of the work beside it.
PULSE_CONSTEXPR void validate_fill(const schedule_problem& problem, const frozen_work& work, const schedule& passes,
                                   const std::vector<std::vector<frozen_task>>& tasks);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/validate_fill.ipp> // IWYU pragma: keep
#endif
