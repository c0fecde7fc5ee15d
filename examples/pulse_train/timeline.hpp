#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/runtime/trace.hpp>
#include <pulse/simulate/duration.hpp>

#include "../instruction_event.hpp"
#include "../pictures/timeline_event.hpp"

namespace pulse_train {

/// A number for a message in a step, the same for a send and its receive, so that a picture can connect them.
[[nodiscard]] inline std::int64_t flow_of(const pulse::message_id& m) {
    const std::int64_t kind = pulse::is_of_frozen_task(m.kind) ? 4 + (m.kind == pulse::message_kind::encoded ? 1 : 0)
                                                               : static_cast<std::int64_t>(m.kind);
    return 1 + kind + 6 * (m.index + std::int64_t{1024} * pulse::index_of(m.microbatch));
}

/// A rank whose instructions were recorded, and the origin of its event times.
struct traced_rank {
    int rank{};
    pulse::replica_place place{};
    const pulse::step_model& model;
    const std::vector<pulse::instruction>& program;
    std::int64_t origin_ns{};

    [[nodiscard]] double microseconds(std::int64_t ns) const { return static_cast<double>(ns - origin_ns) * 1e-3; }
};

/// One rank's recorded instructions as events, in microseconds, without starts of sums over replicas: see
/// reductions_of.
[[nodiscard]] inline std::vector<pictures::timeline_event> events_of(const traced_rank& of,
                                                                     const std::vector<pulse::trace_event>& recorded) {
    std::vector<pictures::timeline_event> events;
    // Replicas send the same messages, so each gets its own numbers.
    const std::int64_t of_replica = of.place.replica * (std::int64_t{1} << 40);
    for (const pulse::trace_event& seen : recorded) {
        const pulse::instruction& what = of.program[static_cast<std::size_t>(seen.instruction)];
        auto e = pulse_examples::event_of(what);
        if (!e || std::holds_alternative<pulse::op::all_reduce>(what)) { continue; }
        e->rank = of.rank;
        e->start_us = of.microseconds(seen.start_ns + seen.waited_ns);
        e->end_us = of.microseconds(seen.end_ns);
        const auto carries = [&](const pulse::message_id& message) {
            e->lane = 1;
            e->flow = of_replica + flow_of(message);
            for (const pulse::buffer_id& part : of.model.parts(message, of.place.device)) {
                e->bytes += of.model.bytes(part);
            }
        };
        if (const auto* s = std::get_if<pulse::op::send>(&what)) { carries(s->message); }
        if (const auto* v = std::get_if<pulse::op::recv>(&what)) { carries(v->message); }
        events.push_back(*std::move(e));
    }
    return events;
}

/// Sums of gradients over the replicas, each in its own row beside the rank's concurrent computation; the bytes are
/// those of the stage's parameters.
[[nodiscard]] inline std::vector<pictures::timeline_event> reductions_of(
    const traced_rank& of, const std::vector<pulse::reduction_event>& recorded) {
    std::vector<pictures::timeline_event> events;
    for (const pulse::reduction_event& seen : recorded) {
        auto e = pulse_examples::event_of(of.program[static_cast<std::size_t>(seen.instruction)]);
        if (!e) { continue; }
        e->rank = of.rank;
        e->lane = 2 + static_cast<int>(events.size());
        e->start_us = of.microseconds(seen.start_ns);
        e->end_us = of.microseconds(seen.end_ns);
        e->bytes = pulse::parameter_bytes_of(of.model, e->stage);
        events.push_back(*std::move(e));
    }
    return events;
}

} // namespace pulse_train
