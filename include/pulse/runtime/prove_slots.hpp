#pragma once

#include <span>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/verdict.hpp>
#include <pulse/runtime/transfer_slots.hpp>

namespace pulse {

/// What a rank does in a step, for prove_slots: its program and how its transfers are put together.
struct rank_transfers {
    std::vector<transfer_step> steps{};
    std::vector<transfer_slot> slots{};
};

/// Why a step whose slots are NCCL groups would hang or mistake one message for another, or nothing when it cannot,
/// whatever the speeds of the ranks. `ranks` are those of one replica.
[[nodiscard]] PULSE_INLINE verdict prove_slots(std::span<const rank_transfers> ranks);

/// The slots of all ranks of a replica, proved: as large as they may be, and of one transfer each where larger ones
/// would hang, since no program of lower() can.
[[nodiscard]] PULSE_INLINE std::vector<rank_transfers> transfers_of(const step_model& model,
                                                                    const std::vector<program>& programs);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/prove_slots.ipp> // IWYU pragma: keep
#endif
