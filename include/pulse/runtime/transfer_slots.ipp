#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/transfer_slots.hpp>

namespace pulse {

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

PULSE_INLINE std::vector<transfer_step> transfer_steps(const step_model& model, const program& of_rank) {
    const memory_layout layout = lay_out(model, of_rank);
    prepared_program prepared{model, of_rank, layout};
    std::vector<transfer_step> steps(prepared.size());
    for (std::size_t i = 0; i != steps.size(); ++i) {
        transfer_step& step = steps[i];
        step.waits = prepared.prepared(i).waits;
        step.computes = is_compute(prepared.at(i)) || std::holds_alternative<op::encode>(prepared.at(i)) ||
                        std::holds_alternative<op::optimizer_step>(prepared.at(i)) ||
                        std::holds_alternative<op::all_reduce>(prepared.at(i));
        const auto& parts = prepared.prepared(i).parts;
        step.parts =
            static_cast<int>(std::ranges::count_if(parts, [](const message_part& part) { return part.bytes != 0; }));
        if (const auto* out = std::get_if<op::send>(&prepared.at(i))) {
            step.what = transfer_step::role::send;
            step.peer = index_of(out->peer);
            step.message = out->message;
        } else if (const auto* in = std::get_if<op::recv>(&prepared.at(i))) {
            step.what = transfer_step::role::receive;
            step.peer = index_of(in->peer);
            step.message = in->message;
            for (const int place : prepared.prepared(i).part_places) {
                step.free_after = std::max(step.free_after, free_after(layout, place, static_cast<int>(i)));
            }
        }
    }
    return steps;
}

} // namespace detail

PULSE_INLINE std::vector<transfer_slot> slots_of(std::span<const transfer_step> steps, int most) {
    std::vector<transfer_slot> slots;
    std::array<std::optional<std::size_t>, 2> open{}; // per way
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
    detail::order_slots(slots);
    return slots;
}

} // namespace pulse
