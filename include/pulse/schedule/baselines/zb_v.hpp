#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The fixed order of ZB-V (Qi et al., 2024) for F = B = W: no device idles between its first and its last pass.
///
/// Defined from 2P - 1 microbatches on; fewer: the order for 2P - 1 without the surplus. At most 2P stage activations
/// on every device. Ignores memory limits. Throws input_error unless the placement is folded in one wave and the
/// backward split.
[[nodiscard]] PULSE_CONSTEXPR schedule zb_v_fixed(const schedule_problem& problem);

/// ZB-V as its authors run it: the best of the fixed order and of the greedy run in its four fill modes, on the
/// problem's own times and lags, with room for 2P stage activations on a device.
///
/// Under memory limits, the best of these that fits; with room for less than 2P the greedy run finds no order (for that
/// its authors have other schedules). Throws infeasible_error when nothing fits, input_error as `zb_v_fixed`.
[[nodiscard]] PULSE_CONSTEXPR schedule zb_v(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/zb_v.ipp> // IWYU pragma: keep
#endif
