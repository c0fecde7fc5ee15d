#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// The programs of all ranks of a pipeline replica. Throws input_error where the plan's order is impossible or its
/// spare_sends are negative. Where values end: with_releases.
///
/// Each program is one global order of passes and messages (order_step), restricted to the rank. That is why no program
/// can deadlock, even if a send blocks until its receive is reached (rendezvous): of all events not yet done, take the
/// first in the global order. Every rank that takes part in it has done all its earlier events and stands at it. If it
/// is a pass, its inputs come from earlier events and it runs; if it is a message, both of its ranks stand at it and it
/// is transferred. Either way one more event is done. With sends and receives that do not block, a wait only ever
/// concerns an event that is earlier in the global order than what follows the wait, so the same induction holds.
///
/// Under recomputation::skips a stage is recomputed right before the first F on its device that reads one of its
/// skips; under recomputation::stages every stage is, right before each of its B, and under
/// recomputation::selective each of its stages. stash follows what makes the value
/// that a decoder reads: the recompute under recomputation::skips, otherwise the forward.
///
/// A preview is a forward of preview_of(m). Nothing of it is recomputed, and its skips are stashed as it makes them.
///
/// Frozen tasks are events as passes are, each by its start among the passes of its device.
[[nodiscard]] PULSE_CONSTEXPR std::vector<program> lower(const plan& planned, const step_model& model);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/lower.ipp> // IWYU pragma: keep
#endif
