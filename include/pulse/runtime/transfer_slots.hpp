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

/// The two sequences in which a rank's transfers run side by side: those of forward and of backward passes.
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
    /// Number of NCCL calls it takes.
    int parts{1};
    /// An instruction that computes nothing and waits for nothing need not end a slot.
    bool computes{};
    /// Transfers, by instruction number, that must complete before this instruction.
    std::vector<int> waits{};
    /// For a receive: the last earlier instruction that may touch its buffer; -1 if none in the step does.
    int free_after{-1};
};

/// Transfers of one rank that start together, as an NCCL group: instruction numbers of sends and receives, in order.
struct transfer_slot {
    transfer_way way{};
    std::vector<int> transfers{};

    [[nodiscard]] constexpr bool operator==(const transfer_slot&) const = default;
};

/// With more in one NCCL group, the two sides may cut it into kernels differently.
inline constexpr int most_transfers_of_slot = 4;

namespace detail {

/// What a rank's program asks of its transport, one entry per instruction.
[[nodiscard]] PULSE_INLINE std::vector<transfer_step> transfer_steps(const step_model& model, const program& of_rank);

/// Sorts slots into the order in which they start: when their last transfer is posted.
inline void order_slots(std::vector<transfer_slot>& slots) {
    std::stable_sort(slots.begin(), slots.end(), [](const transfer_slot& a, const transfer_slot& b) {
        return a.transfers.back() < b.transfers.back();
    });
}

} // namespace detail

/// Slots of one rank, in the order in which they start: at most `most` transfers of one way, posted by the program with
/// nothing between them that another rank could wait for.
///
/// The slots of all ranks follow one global order of transfers (lower), split differently on every rank, so both sides
/// of a pair reach their transfers in the same order.
[[nodiscard]] PULSE_INLINE std::vector<transfer_slot> slots_of(std::span<const transfer_step> steps,
                                                               int most = most_transfers_of_slot);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/transfer_slots.ipp> // IWYU pragma: keep
#endif
