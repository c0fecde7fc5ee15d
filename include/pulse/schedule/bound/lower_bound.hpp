#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse {

/// A makespan that no schedule can beat, with the heads and tails that prove it.
struct schedule_bound {
    double makespan_us{};
    /// [op * microbatches + microbatch]: earliest start, and least time from its end to the end of the step.
    std::vector<double> head{};
    std::vector<double> tail{};
};

/// A lower bound of the makespan with its heads and tails, microseconds.
///
/// The maximum of head + duration + tail over every instance, Jackson's preemptive schedule of every device, and per
/// device under a memory limit: `hold_area_bound` and the idle time that heads, tails and limit force
/// (`forced_idle_bound`). Throws input_error for an ill-formed problem.
[[nodiscard]] PULSE_CONSTEXPR schedule_bound bound_schedule(const schedule_problem& problem);

/// The makespan of `bound_schedule`.
[[nodiscard]] PULSE_CONSTEXPR double lower_bound_us(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/bound/lower_bound.ipp> // IWYU pragma: keep
#endif
