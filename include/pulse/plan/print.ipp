#pragma once

#include <cstddef>
#include <string>
#include <variant>

#include <pulse/core/ids.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/program.hpp>

namespace pulse {

namespace detail {

/// " of microbatch 3", " of the preview of microbatch 3".
[[nodiscard]] inline std::string of(microbatch_id m) {
    return (is_preview(m) ? " of the preview of microbatch " : " of microbatch ") + std::to_string(data_of(m));
}

} // namespace detail

PULSE_INLINE std::string to_text(const buffer_id& buffer) {
    if (buffer.kind == buffer_kind::result) { return "result of frozen task " + std::to_string(buffer.index); }
    if (buffer.kind == buffer_kind::paused) {
        return "activation of frozen task " + std::to_string(buffer.index) + " for task " +
               std::to_string(index_of(buffer.microbatch));
    }
    return std::string(name_of(buffer.kind)) + ' ' + std::to_string(buffer.index) + detail::of(buffer.microbatch);
}

PULSE_INLINE std::string to_text(const message_id& message) {
    if (is_between_replicas(message.kind)) {
        return std::string(name_of(message.kind)) + ' ' + std::to_string(message.index) + " of share " +
               std::to_string(index_of(message.microbatch));
    }
    if (is_of_frozen_task(message.kind)) {
        return std::string(name_of(message.kind)) + " by frozen task " + std::to_string(message.index) +
               (message.kind == message_kind::encoded ? " for rank " : " for task ") +
               std::to_string(index_of(message.microbatch));
    }
    return std::string(name_of(message.kind)) + ' ' + std::to_string(message.index) + detail::of(message.microbatch);
}

PULSE_INLINE std::string to_text(pass kind, int stage, int microbatch) {
    return std::string(1, letter_of(kind)) + " of stage " + std::to_string(stage) + ", microbatch " +
           std::to_string(microbatch);
}

namespace detail {

struct instruction_text {
    template <class Id>
    static std::string of(const char* what, Id id, microbatch_id m) {
        return std::string(what) + ' ' + std::to_string(index_of(id)) + detail::of(m);
    }
    std::string operator()(const op::forward& i) const { return of("forward", i.stage, i.microbatch); }
    std::string operator()(const op::recompute& i) const { return of("recompute", i.stage, i.microbatch); }
    std::string operator()(const op::backward_input& i) const {
        return of(i.with_weight ? "backward" : "backward_input", i.stage, i.microbatch);
    }
    std::string operator()(const op::backward_weight& i) const { return of("backward_weight", i.stage, i.microbatch); }
    std::string operator()(const op::send& i) const {
        return "send " + to_text(i.message) + " to rank " + std::to_string(index_of(i.peer));
    }
    std::string operator()(const op::recv& i) const {
        return "recv " + to_text(i.message) + " from rank " + std::to_string(index_of(i.peer));
    }
    std::string operator()(const op::stash& i) const { return of("stash", i.edge, i.microbatch); }
    std::string operator()(const op::encode& i) const { return "encode task " + std::to_string(i.task); }
    std::string operator()(const op::keep& i) const { return "keep result of frozen task " + std::to_string(i.task); }
    std::string operator()(const op::release& i) const { return "release " + to_text(i.buffer); }
    std::string operator()(const op::all_reduce& i) const { return "all_reduce " + std::to_string(index_of(i.stage)); }
    std::string operator()(const op::optimizer_step&) const { return "optimizer_step"; }
};

} // namespace detail

PULSE_INLINE std::string to_text(const instruction& what) { return std::visit(detail::instruction_text{}, what); }

PULSE_INLINE std::string to_text(const program& of_rank) {
    std::string all = "rank " + std::to_string(of_rank.device) + '\n';
    for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
        all += std::to_string(i) + ": " + to_text(of_rank.instructions[i]) + '\n';
    }
    return all;
}

} // namespace pulse
