#pragma once

#include <span>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/verdict.hpp>
#include <pulse/runtime/transfer_slots.hpp>

namespace pulse {

/// What a rank does in a step, for prove_slots: its program and its transfers grouped into slots.
struct rank_transfers {
    std::vector<transfer_step> steps{};
    std::vector<transfer_slot> slots{};
};

/// Checks that a step whose slots are NCCL groups cannot hang or confuse messages, whatever the ranks' speeds; returns
/// the reason if it can. `ranks` are those of one replica.
[[nodiscard]] PULSE_INLINE verdict prove_slots(std::span<const rank_transfers> ranks);

/// The proved slots of all ranks of a replica: as large as possible, and of one transfer each where larger ones would
/// hang; no program of lower() hangs with those.
[[nodiscard]] PULSE_INLINE std::vector<rank_transfers> transfers_of(const step_model& model,
                                                                    const std::vector<program>& programs);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/prove_slots.ipp> // IWYU pragma: keep
#endif
