#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// 1F1B (PipeDream-Flush; Narayanan et al., 2021): stage s runs S-1-s forwards to warm up, then one forward and one
/// backward in turn, then the backwards that are left. At most S-s microbatches are held.
///
/// Defined for one stage per device, whichever device that is: throws input_error for folded and interleaved
/// placements, where a device has several stages and the authors' order does not say which goes first. Split, W follows
/// its B at once. Ignores memory limits.
[[nodiscard]] PULSE_CONSTEXPR schedule one_f_one_b(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/one_f_one_b.ipp> // IWYU pragma: keep
#endif
