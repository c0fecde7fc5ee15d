#pragma once

#include <variant>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse::detail {

[[nodiscard]] inline bool is_of_forward_passes(message_kind kind) noexcept {
    return kind == message_kind::boundary || kind == message_kind::skip || kind == message_kind::prediction;
}

/// Whether an evaluation, which runs only a step's forward passes and losses, executes an instruction. Of a backward
/// pass that begins with a loss, it computes only the loss. A stage is recomputed for the loss that reads its output,
/// or for the forward passes that read its skips.
[[nodiscard]] inline bool is_of_forward_passes(const instruction& what, const step_model& model) noexcept {
    if (const auto* out = std::get_if<op::send>(&what)) { return is_of_forward_passes(out->message.kind); }
    if (const auto* in = std::get_if<op::recv>(&what)) { return is_of_forward_passes(in->message.kind); }
    if (const auto* again = std::get_if<op::recompute>(&what)) {
        return model.recompute().kind == recomputation::skips || model.ends_chain(index_of(again->stage));
    }
    if (const auto* b = std::get_if<op::backward_input>(&what)) { return model.ends_chain(index_of(b->stage)); }
    return std::holds_alternative<op::forward>(what) || std::holds_alternative<op::stash>(what) ||
           std::holds_alternative<op::release>(what);
}

} // namespace pulse::detail
