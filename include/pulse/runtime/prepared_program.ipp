#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/access.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/layout.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/prepared_program.hpp>
#include <pulse/runtime/transport.hpp>

namespace pulse::detail {

PULSE_INLINE void prepared_program::prepare(const step_model& model, const memory_layout& layout) {
    for (std::size_t i = 0; i != prepared_.size(); ++i) { resolve(model, layout, i); }
    find_waits(layout);
    find_ends_of_gradients();
}

PULSE_INLINE int prepared_program::place_at(const memory_layout& layout, buffer_id buffer, std::size_t when) {
    for (std::size_t p = 0; p != layout.places.size(); ++p) {
        const buffer_place& place = layout.places[p];
        if (place.buffer == buffer && place.first <= static_cast<int>(when) && static_cast<int>(when) <= place.last) {
            return static_cast<int>(p);
        }
    }
    throw error{"pulse: a program uses a buffer that has no place in its memory layout"};
}

PULSE_INLINE void prepared_program::resolve(const step_model& model, const memory_layout& layout, std::size_t i) {
    prepared_instruction& mine = prepared_[i];
    const auto add = [&](buffer_id buffer, bool written) {
        const int place = place_at(layout, buffer, i);
        mine.places.emplace_back(buffer, place);
        if (written) { mine.written.push_back(place); }
        if (layout.places[static_cast<std::size_t>(place)].first == static_cast<int>(i)) {
            mine.acquired.push_back(place);
        }
    };
    if (const auto* released = std::get_if<op::release>(&at(i))) {
        add(released->buffer, true);
    } else {
        for (const buffer_access& a : model.accesses(source_.device, at(i))) { add(a.buffer, a.mode != access::read); }
    }
    sort_unique(mine.places);
    sort_unique(mine.acquired);
    sort_unique(mine.written);
    if (const auto* out = std::get_if<op::send>(&at(i))) { add_parts(model, layout, i, out->message); }
    if (const auto* in = std::get_if<op::recv>(&at(i))) { add_parts(model, layout, i, in->message); }
}

PULSE_INLINE void prepared_program::add_parts(const step_model& model, const memory_layout& layout, std::size_t i,
                                              message_id message) {
    prepared_instruction& mine = prepared_[i];
    for (const buffer_id buffer : model.parts(message, source_.device)) {
        const bool is_skip = model.is_skip_part(message, mine.parts.size());
        mine.part_places.push_back(place_at(layout, buffer, i));
        mine.parts.push_back({nullptr, static_cast<std::size_t>(model.bytes(buffer)),
                              is_skip ? traffic_kind::skip : traffic_kind::boundary, false});
    }
}

PULSE_INLINE void prepared_program::find_waits(const memory_layout& layout) {
    std::vector<int> last_use(layout.places.size(), -1);
    std::vector<int> send_count(layout.places.size(), 0);
    for (std::size_t i = 0; i != prepared_.size(); ++i) {
        if (std::holds_alternative<op::release>(at(i))) { continue; }
        for (const auto& entry : prepared_[i].places) {
            last_use[static_cast<std::size_t>(entry.second)] = static_cast<int>(i);
            send_count[static_cast<std::size_t>(entry.second)] += std::holds_alternative<op::send>(at(i)) ? 1 : 0;
        }
    }
    std::vector<int> arriving(layout.places.size(), -1);
    std::vector<std::vector<int>> leaving(layout.places.size());
    std::vector<bool> waited(prepared_.size());
    for (std::size_t i = 0; i != prepared_.size(); ++i) {
        prepared_instruction& mine = prepared_[i];
        const auto wait_for = [&](int other) {
            if (!waited[static_cast<std::size_t>(other)]) { mine.waits.push_back(other); }
            waited[static_cast<std::size_t>(other)] = true;
        };
        for (const auto& entry : mine.places) {
            const auto p = static_cast<std::size_t>(entry.second);
            if (arriving[p] >= 0) { wait_for(std::exchange(arriving[p], -1)); }
            if (std::binary_search(mine.written.begin(), mine.written.end(), entry.second)) {
                for (const int out : leaving[p]) { wait_for(out); }
                leaving[p].clear();
            }
            if (std::holds_alternative<op::recv>(at(i))) { arriving[p] = static_cast<int>(i); }
            if (std::holds_alternative<op::send>(at(i))) { leaving[p].push_back(static_cast<int>(i)); }
        }
        if (!std::holds_alternative<op::send>(at(i))) { continue; }
        for (std::size_t part = 0; part != mine.parts.size(); ++part) {
            const auto p = static_cast<std::size_t>(mine.part_places[part]);
            const auto times = std::count(mine.part_places.begin(), mine.part_places.end(), mine.part_places[part]);
            mine.parts[part].may_exchange =
                last_use[p] == static_cast<int>(i) && send_count[p] == 1 && times == 1 && layout.places[p].slot >= 0;
        }
    }
}

PULSE_INLINE void prepared_program::find_ends_of_gradients() {
    std::set<stage_id> of_input;
    std::map<stage_id, std::size_t> of_weight; // the last one so far
    const auto makes_weight = [&](std::size_t i, stage_id stage) {
        prepared_[i].first_of_weight = of_weight.insert_or_assign(stage, i).second;
    };
    for (std::size_t i = 0; i != prepared_.size(); ++i) {
        if (const auto* b = std::get_if<op::backward_input>(&at(i))) {
            prepared_[i].first_of_input = of_input.insert(b->stage).second;
            if (b->with_weight) { makes_weight(i, b->stage); }
        } else if (const auto* w = std::get_if<op::backward_weight>(&at(i))) {
            makes_weight(i, w->stage);
        }
    }
    for (const auto& last : of_weight) { prepared_[last.second].last_of_weight = true; }
}

} // namespace pulse::detail
