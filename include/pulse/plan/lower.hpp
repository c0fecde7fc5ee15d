#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Lowers a plan to the programs of all ranks of one pipeline replica; with_releases places the releases. Throws
/// input_error if the plan's order is impossible or its spare_sends are negative.
///
/// Each program is one global order of passes and messages (order_step), restricted to the rank. That is why no program
/// can deadlock, even if a send blocks until its receive is reached (rendezvous): of all events not yet done, take the
/// first in the global order. Every rank that takes part in it has done all its earlier events, so this event is its
/// next. If it is a pass, its inputs come from earlier events and it runs; if it is a message, it is the next event of
/// both its ranks and is transferred. Either way one more event is done. If sends and receives do not block, every wait
/// is for an event that precedes, in the global order, what follows the wait, so the same induction holds.
///
/// Under recomputation::skips a stage is recomputed right before the first F on its device that reads one of its skips.
/// Under recomputation::stages every stage, and under recomputation::selective every selected stage, is recomputed
/// right before each of its B. A stash follows the instruction that makes the value for the decoder: the recompute
/// under recomputation::skips, otherwise the forward.
///
/// A preview runs as a forward of preview_of(m). It is never recomputed, and its skips are stashed after that forward.
///
/// Frozen tasks are events as passes are, placed by their start among the passes of their device.
[[nodiscard]] PULSE_CONSTEXPR std::vector<program> lower(const plan& planned, const step_model& model);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/lower.ipp> // IWYU pragma: keep
#endif
