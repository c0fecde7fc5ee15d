#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The schedule of a published method on the problem's own times, lags and bytes, within its memory limits.
///
/// A method whose order knows no memory is never changed to fit: it fits or it does not. Throws infeasible_error,
/// naming device, need and limit, when it does not; input_error where the method is not defined for the problem, or is
/// no baseline.
[[nodiscard]] PULSE_CONSTEXPR schedule baseline_schedule(const schedule_problem& problem, schedule_method method);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/baseline.ipp> // IWYU pragma: keep
#endif
