#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// What filling may spend.
struct fill_options {
    /// Passes and layers placed: several millions a second. The result depends on the input and this alone.
    std::int64_t placements{400'000};
    /// Whether passes may change their order on a device, the microbatches of an operation not among themselves: where
    /// the end is still 1 % behind the bound, for 1.25 times as many placements more.
    bool reorder_passes{true};
};

/// Frozen work in the gaps of `passes`, a schedule of `problem`, for the earliest end that could be found of all that
/// devices do, after_us of the work included; without that the least makespan. The orders of the passes stay unless
/// others end sooner, and their times where there is no work.
///
/// `passes_bound_us` is a makespan that the passes alone cannot beat: `lower_bound_us` of a synthesis. Throws
/// input_error for bad work and for orders that cannot run; infeasible_error when some layer fits on no host.
[[nodiscard]] PULSE_CONSTEXPR filled_schedule fill_schedule(const schedule_problem& problem, const schedule& passes,
                                                            const frozen_work& work, double passes_bound_us,
                                                            const fill_options& options = fill_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/fill/fill_schedule.ipp> // IWYU pragma: keep
#endif
