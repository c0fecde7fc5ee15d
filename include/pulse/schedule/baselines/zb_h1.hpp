#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// ZB-H1 (Qi et al., 2023): zero-bubble scheduling in 1F1B's memory, the best of its heuristic's eight combinations of
/// flags on the problem's own times, lags and bytes.
///
/// 1F1B's memory is the most that 1F1B holds on any device; every device may hold that much. Under the problem's own
/// limits the heuristic warms up less and takes W earlier. Throws infeasible_error when a device cannot hold one
/// microbatch that runs alone, input_error unless the placement is sequential and the backward split.
[[nodiscard]] PULSE_CONSTEXPR schedule zb_h1(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/zb_h1.ipp> // IWYU pragma: keep
#endif
