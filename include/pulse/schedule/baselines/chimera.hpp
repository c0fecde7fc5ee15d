#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/bidirectional.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Chimera (Li and Hoefler, 2021), bidirectional pipelines: the step is filled from both ends, which halves the bubble
/// of P microbatches, for a second copy of the parameters and a sum of gradients between the copies (`step_us`).
///
/// The authors give the order for P microbatches of equal stages and join such blocks for more; here the same rule,
/// 1F1B in either direction, is run on the problem's times and lags with P/2 to P microbatches of a direction under way
/// and ties to the forward or to the backward, and the shortest step that fits into memory is taken. Split, W follows
/// its B at once. Throws infeasible_error when none fits.
[[nodiscard]] PULSE_CONSTEXPR schedule chimera(const bidirectional_problem& both);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/chimera.ipp> // IWYU pragma: keep
#endif
