#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/prepared_program.hpp>

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
    /// Instructions that computes nothing and waits for nothing need not end a slot.
    bool computes{};
    /// Transfers, as instruction numbers, that must be over before this instruction.
    std::vector<int> waits{};
    /// Of a receive: the last instruction before it that may touch its room; -1 when none of the step does.
    int free_after{-1};
};

/// Transfers of one rank that start together and run beside each other: instruction numbers of sends and receives, in
/// order.
struct transfer_slot {
    transfer_way way{};
    std::vector<int> transfers{};

    [[nodiscard]] constexpr bool operator==(const transfer_slot&) const = default;
};

/// More of them in one NCCL group can be cut into kernels in different ways on the two sides.
inline constexpr int most_transfers_of_slot = 4;

namespace detail {

/// The last instruction before `receive` that may touch the memory into which it receives the value of `place`.
[[nodiscard]] inline int free_after(const memory_layout& layout, int place, int receive) {
    const buffer_place& room = layout.places[static_cast<std::size_t>(place)];
    if (room.first != receive || room.slot < 0) { return receive - 1; }
    int last = -1;
    for (const buffer_place& other : layout.places) {
        if (other.slot == room.slot && other.first < receive) { last = std::max(last, other.last); }
    }
    return last;
}

} // namespace detail

/// What a rank's program asks of its transport, instruction by instruction.
[[nodiscard]] inline std::vector<transfer_step> transfer_steps(const step_model& model, const program& of_rank) {
    const memory_layout layout = lay_out(model, of_rank);
    prepared_program prepared{model, of_rank, layout};
    std::vector<transfer_step> steps(prepared.size());
    for (std::size_t i = 0; i != steps.size(); ++i) {
        transfer_step& step = steps[i];
        step.waits = prepared.prepared(i).waits;
        step.computes = is_compute(prepared.at(i)) || std::holds_alternative<op::optimizer_step>(prepared.at(i)) ||
                        std::holds_alternative<op::all_reduce>(prepared.at(i));
        if (const auto* out = std::get_if<op::send>(&prepared.at(i))) {
            step.what = transfer_step::role::send;
            step.peer = index_of(out->peer);
            step.message = out->message;
        } else if (const auto* in = std::get_if<op::recv>(&prepared.at(i))) {
            step.what = transfer_step::role::receive;
            step.peer = index_of(in->peer);
            step.message = in->message;
            for (const int place : prepared.prepared(i).part_places) {
                step.free_after = std::max(step.free_after, detail::free_after(layout, place, static_cast<int>(i)));
            }
        }
    }
    return steps;
}

/// Puts slots into the order in which they start: with their last transfer.
inline void order_slots(std::vector<transfer_slot>& slots) {
    std::stable_sort(slots.begin(), slots.end(), [](const transfer_slot& a, const transfer_slot& b) {
        return a.transfers.back() < b.transfers.back();
    });
}

/// Slots of one rank, in the order in which they start: the transfers of one way that its program posts with nothing
/// between them for which another rank could wait, at most `most` of them.
///
/// The slots of all ranks are one global order of transfers (lower), cut differently on every rank: both sides of a
/// pair come to their transfers in the same order.
[[nodiscard]] inline std::vector<transfer_slot> slots_of(std::span<const transfer_step> steps,
                                                         int most = most_transfers_of_slot) {
    std::vector<transfer_slot> slots;
    std::array<std::optional<std::size_t>, 2> open{}; // of each way
    for (std::size_t i = 0; i != steps.size(); ++i) {
        const transfer_step& step = steps[i];
        if (step.computes || !step.waits.empty()) { open = {}; }
        if (step.what == transfer_step::role::other) { continue; }
        const transfer_way way = way_of(step.message.kind);
        std::optional<std::size_t>& mine = open[static_cast<std::size_t>(way)];
        if (!mine || slots[*mine].transfers.size() == static_cast<std::size_t>(most)) {
            mine = slots.size();
            slots.push_back({way, {}});
        }
        slots[*mine].transfers.push_back(static_cast<int>(i));
    }
    order_slots(slots);
    return slots;
}

} // namespace pulse
