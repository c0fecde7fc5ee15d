#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Limits of a fill.
struct fill_options {
    /// Passes and layers to place: several millions a second. The result depends only on the input and this.
    std::int64_t placements{400'000};
    /// Whether passes may be reordered on a device; the microbatches of an operation stay in order. Tried when the end
    /// is more than 1 % above the bound, with another 1.25 times as many placements.
    bool reorder_passes{true};
};

/// Places frozen work in the gaps of `passes`, a schedule of `problem`, so that everything ends as early as possible,
/// after_us of the work included; without after_us this is the makespan. The orders of the passes stay unless others
/// end sooner, and their times stay when there is no work.
///
/// `passes_bound_us` is a makespan that the passes alone cannot beat: `lower_bound_us` of a synthesis. Throws
/// input_error for invalid work and for orders that cannot run; infeasible_error when no fill within memory is found.
[[nodiscard]] PULSE_CONSTEXPR filled_schedule fill_schedule(const schedule_problem& problem, const schedule& passes,
                                                            const frozen_work& work, double passes_bound_us,
                                                            const fill_options& options = fill_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/fill/fill_schedule.ipp> // IWYU pragma: keep
#endif
