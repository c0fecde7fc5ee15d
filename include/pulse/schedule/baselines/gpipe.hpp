#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// GPipe (Huang et al., 2019): every device runs all its forwards, then all its backwards.
///
/// A device with several stages (folded, interleaved) takes them one after the other, all microbatches of one before
/// the next: lowest stage first in the forward, highest first in the backward. Microbatches come in order in both,
/// where GPipe's backward may reverse them: the bubble is the same. Split, W follows its B at once. Ignores memory
/// limits: M microbatches are held. Throws input_error for an ill-formed problem.
[[nodiscard]] PULSE_CONSTEXPR schedule gpipe(const schedule_problem& problem);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/gpipe.ipp> // IWYU pragma: keep
#endif
