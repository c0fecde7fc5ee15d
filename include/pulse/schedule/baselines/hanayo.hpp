#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Hanayo (Liu et al., 2023): W waves of a folded placement, in the order of its 1F1B: whenever a device is free it
/// runs a backward that is there, else a forward.
///
/// The paper's order is for P microbatches; for more it states none, so the best of a few is taken that its rule
/// allows: 1 to 2 times P or all microbatches under way at once, ties between stages broken by microbatch or by stage.
/// Split, W follows its B at once. Under memory limits, the best that fits. Throws infeasible_error when none does,
/// input_error unless the placement is folded.
[[nodiscard]] PULSE_CONSTEXPR schedule hanayo(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/hanayo.ipp> // IWYU pragma: keep
#endif
