#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// The order of DualPipeV (DeepSeek, 2025) without its overlap of a forward with a backward: pairs run one after the
/// other, F first. One wave, split backward; W's that wait are taken first in, first out.
///
/// Defined from 2P microbatches on; fewer: the order for 2P without the surplus. Ignores memory limits: 2P + 1 stage
/// activations are held. Throws input_error unless the placement is folded in one wave and the backward split.
[[nodiscard]] PULSE_CONSTEXPR schedule dualpipe_v(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/dualpipe_v.ipp> // IWYU pragma: keep
#endif
