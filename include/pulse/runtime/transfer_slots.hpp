#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Of the two sequences in which a rank's transfers run, beside each other: those of forward and of backward passes.
enum class transfer_way : std::uint8_t { forward, backward };

[[nodiscard]] constexpr transfer_way way_of(message_kind kind) noexcept {
    return kind == message_kind::boundary || kind == message_kind::skip ? transfer_way::forward
                                                                        : transfer_way::backward;
}

/// An instruction, as far as transfers are concerned.
struct transfer_step {
    enum class role : std::uint8_t { other, send, receive };
    role what{role::other};
    int peer{};
    message_id message{};
    /// Calls of NCCL that it takes.
    int parts{1};
    /// Instructions that computes nothing and waits for nothing need not end a slot.
    bool computes{};
    /// Transfers, as instruction numbers, that must be over before this instruction.
    std::vector<int> waits{};
    /// Of a receive: the last instruction before it that may touch its room; -1 when none of the step does.
    int free_after{-1};
};

/// Transfers of one rank that start together, as a group of NCCL: instruction numbers of sends and receives, in order.
struct transfer_slot {
    transfer_way way{};
    std::vector<int> transfers{};

    [[nodiscard]] constexpr bool operator==(const transfer_slot&) const = default;
};

/// More of them in one NCCL group can be cut into kernels in different ways on the two sides.
inline constexpr int most_transfers_of_slot = 4;

namespace detail {

/// What a rank's program asks of its transport, instruction by instruction.
[[nodiscard]] PULSE_INLINE std::vector<transfer_step> transfer_steps(const step_model& model, const program& of_rank);

/// Puts slots into the order in which they start: with their last transfer.
inline void order_slots(std::vector<transfer_slot>& slots) {
    std::stable_sort(slots.begin(), slots.end(), [](const transfer_slot& a, const transfer_slot& b) {
        return a.transfers.back() < b.transfers.back();
    });
}

} // namespace detail

/// Slots of one rank, in the order in which they start: the transfers of one way that its program posts with nothing
/// between them for which another rank could wait, at most `most` of them.
///
/// The slots of all ranks are one global order of transfers (lower), cut differently on every rank: both sides of a
/// pair come to their transfers in the same order.
[[nodiscard]] PULSE_INLINE std::vector<transfer_slot> slots_of(std::span<const transfer_step> steps,
                                                               int most = most_transfers_of_slot);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/transfer_slots.ipp> // IWYU pragma: keep
#endif
