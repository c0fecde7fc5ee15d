#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <pulse/io/timeline_event.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/trace.hpp>

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
    namespace op = pulse::op;
    std::vector<pulse::io::timeline_event> events;
    for (const pulse::trace_event& seen : recorded) {
        const pulse::instruction& what = program[static_cast<std::size_t>(seen.instruction)];
        pulse::io::timeline_event e;
        e.rank = rank;
        e.name = pulse::to_text(what);
        e.start_us = static_cast<double>(seen.start_ns + seen.waited_ns - origin_ns) * 1e-3;
        e.end_us = static_cast<double>(seen.end_ns - origin_ns) * 1e-3;
        const auto passes = [&](char kind, const auto& p) {
            e.kind = kind;
            e.stage = pulse::index_of(p.stage);
            e.microbatch = pulse::index_of(p.microbatch);
        };
        const auto transfers = [&](char kind, const auto& t) {
            e.kind = kind;
            e.lane = 1;
            e.microbatch = pulse::index_of(t.message.microbatch);
            e.flow = flow_of(t.message);
            for (const pulse::buffer_id& part : model.parts(t.message, rank)) { e.bytes += model.bytes(part); }
        };
        if (const auto* f = std::get_if<op::forward>(&what)) {
            passes('F', *f);
        } else if (const auto* r = std::get_if<op::recompute>(&what)) {
            passes('R', *r);
        } else if (const auto* b = std::get_if<op::backward_input>(&what)) {
            passes('B', *b);
        } else if (const auto* w = std::get_if<op::backward_weight>(&what)) {
            passes('W', *w);
        } else if (const auto* s = std::get_if<op::send>(&what)) {
            transfers('S', *s);
        } else if (const auto* v = std::get_if<op::recv>(&what)) {
            transfers('V', *v);
        } else if (std::holds_alternative<op::optimizer_step>(what)) {
            e.kind = 'O';
        } else {
            continue;
        }
        events.push_back(std::move(e));
    }
    return events;
}

} // namespace pulse_train
