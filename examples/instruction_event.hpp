#pragma once

#include <optional>
#include <variant>

#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>

#include "pictures/timeline_event.hpp"

namespace pulse_examples {

/// An instruction as pictures and traces show it: name, kind, stage and microbatch. The caller sets rank, lane, times
/// and a transfer's contents. None for bookkeeping: stash, keep and release.
[[nodiscard]] inline std::optional<pictures::timeline_event> event_of(const pulse::instruction& what) {
    namespace op = pulse::op;
    pictures::timeline_event e;
    e.name = pulse::to_text(what);
    const auto pass = [&](char kind, const auto& p) {
        e.kind = kind;
        e.stage = pulse::index_of(p.stage);
        e.microbatch = pulse::data_of(p.microbatch);
    };
    const auto transfer = [&](char kind, const auto& t) {
        e.kind = kind;
        e.microbatch = pulse::data_of(t.message.microbatch);
    };
    if (const auto* f = std::get_if<op::forward>(&what)) {
        pass(pulse::is_preview(f->microbatch) ? 'P' : 'F', *f);
    } else if (const auto* r = std::get_if<op::recompute>(&what)) {
        pass('R', *r);
    } else if (const auto* b = std::get_if<op::backward_input>(&what)) {
        pass('B', *b);
    } else if (const auto* w = std::get_if<op::backward_weight>(&what)) {
        pass('W', *w);
    } else if (const auto* s = std::get_if<op::send>(&what)) {
        transfer('S', *s);
    } else if (const auto* v = std::get_if<op::recv>(&what)) {
        transfer('V', *v);
    } else if (std::holds_alternative<op::encode>(what)) {
        e.kind = 'E';
    } else if (const auto* a = std::get_if<op::all_reduce>(&what)) {
        e.kind = 'A';
        e.stage = pulse::index_of(a->stage);
    } else if (std::holds_alternative<op::optimizer_step>(what)) {
        e.kind = 'O';
    } else {
        return std::nullopt;
    }
    return e;
}

} // namespace pulse_examples
