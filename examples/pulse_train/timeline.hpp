#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/io/timeline_event.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/trace.hpp>

#include "../instruction_event.hpp"

namespace pulse_train {

/// Room for a message's number in a step, so that a send and the receive that meets it find each other in a picture.
[[nodiscard]] inline std::int64_t flow_of(const pulse::message_id& m) {
    return 1 + static_cast<std::int64_t>(m.kind) + 4 * (m.index + std::int64_t{1024} * pulse::index_of(m.microbatch));
}

/// One rank's recorded instructions as events, microseconds from `origin_ns`.
[[nodiscard]] inline std::vector<pulse::io::timeline_event> events_of(int rank, const pulse::step_model& model,
                                                                      const std::vector<pulse::instruction>& program,
                                                                      const std::vector<pulse::trace_event>& recorded,
                                                                      std::int64_t origin_ns) {
    std::vector<pulse::io::timeline_event> events;
    for (const pulse::trace_event& seen : recorded) {
        const pulse::instruction& what = program[static_cast<std::size_t>(seen.instruction)];
        auto e = pulse_examples::event_of(what);
        if (!e) { continue; }
        e->rank = rank;
        e->start_us = static_cast<double>(seen.start_ns + seen.waited_ns - origin_ns) * 1e-3;
        e->end_us = static_cast<double>(seen.end_ns - origin_ns) * 1e-3;
        const auto carries = [&](const pulse::message_id& message) {
            e->lane = 1;
            e->flow = flow_of(message);
            for (const pulse::buffer_id& part : model.parts(message, rank)) { e->bytes += model.bytes(part); }
        };
        if (const auto* s = std::get_if<pulse::op::send>(&what)) { carries(s->message); }
        if (const auto* v = std::get_if<pulse::op::recv>(&what)) { carries(v->message); }
        events.push_back(*std::move(e));
    }
    return events;
}

} // namespace pulse_train
