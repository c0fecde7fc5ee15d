#pragma once

#include <cstdint>
#include <functional>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// ZB-H1 (Qi et al., 2023): zero-bubble scheduling in 1F1B's memory, the best of its heuristic's eight combinations of
/// flags on the problem's own times, lags and bytes.
///
/// 1F1B's memory is the most that 1F1B holds on any device; every device may hold that much. Under tighter limits the
/// heuristic warms up less and takes W earlier. Throws infeasible_error when a device cannot hold one microbatch that
/// runs alone or no order fits, input_error unless the placement is sequential and the backward split.
[[nodiscard]] PULSE_CONSTEXPR schedule zb_h1(const schedule_problem& problem);

/// The schedule of a published method on the problem's own times, lags and bytes, within its memory limits.
///
/// The order of a method that ignores memory is never changed to fit. Throws infeasible_error, naming device, need and
/// limit, when the order does not fit; input_error when the method is not defined for the problem or is not a baseline.
[[nodiscard]] PULSE_CONSTEXPR schedule baseline_schedule(const schedule_problem& problem, schedule_method method);

namespace detail {

/// Passes every published order that is defined for the problem and keeps its memory limits to `take`, the quick ones
/// first. Before each, asks `go_on` whether a search that places about that many passes may run.
PULSE_INLINE void for_each_known_order(const schedule_problem& problem, const std::function<bool(std::int64_t)>& go_on,
                                       const std::function<void(const schedule&)>& take);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/baseline.ipp> // IWYU pragma: keep
#endif
