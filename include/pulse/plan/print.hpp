#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include <pulse/core/ids.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

[[nodiscard]] constexpr std::string_view name_of(buffer_kind kind) noexcept {
    switch (kind) {
    case buffer_kind::activation: return "activation";
    case buffer_kind::skip: return "skip";
    case buffer_kind::conditioning: return "conditioning";
    case buffer_kind::saved: return "saved";
    case buffer_kind::deferred: return "deferred";
    case buffer_kind::activation_gradient: return "activation_gradient";
    case buffer_kind::conditioning_gradient: return "conditioning_gradient";
    case buffer_kind::skip_gradient: return "skip_gradient";
    }
    return "?";
}

[[nodiscard]] constexpr std::string_view name_of(message_kind kind) noexcept {
    switch (kind) {
    case message_kind::boundary: return "boundary";
    case message_kind::boundary_gradient: return "boundary_gradient";
    case message_kind::skip: return "skip";
    case message_kind::skip_gradient: return "skip_gradient";
    case message_kind::gradient_share: return "gradient_share";
    case message_kind::gradient_sum: return "gradient_sum";
    case message_kind::weight_share: return "weight_share";
    }
    return "?";
}

/// "activation 3 of microbatch 0"; a layer, an edge or a stage, as buffer_kind says.
[[nodiscard]] inline std::string to_text(const buffer_id& buffer) {
    return std::string(name_of(buffer.kind)) + ' ' + std::to_string(buffer.index) + " of microbatch " +
           std::to_string(index_of(buffer.microbatch));
}

/// "boundary 2 of microbatch 0"; a boundary or an edge, as message_kind says. "gradient_sum 2 of share 1" between
/// replicas.
[[nodiscard]] inline std::string to_text(const message_id& message) {
    if (is_between_replicas(message.kind)) {
        return std::string(name_of(message.kind)) + ' ' + std::to_string(message.index) + " of share " +
               std::to_string(index_of(message.microbatch));
    }
    return std::string(name_of(message.kind)) + ' ' + std::to_string(message.index) + " of microbatch " +
           std::to_string(index_of(message.microbatch));
}

/// "F of stage 1, microbatch 0".
[[nodiscard]] inline std::string to_text(pass kind, int stage, int microbatch) {
    return std::string(1, letter_of(kind)) + " of stage " + std::to_string(stage) + ", microbatch " +
           std::to_string(microbatch);
}

namespace detail {

struct instruction_text {
    template <class Id>
    static std::string of(const char* what, Id id, microbatch_id m) {
        return std::string(what) + ' ' + std::to_string(index_of(id)) + " of microbatch " + std::to_string(index_of(m));
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
    std::string operator()(const op::release& i) const { return "release " + to_text(i.buffer); }
    std::string operator()(const op::all_reduce& i) const { return "all_reduce " + std::to_string(index_of(i.stage)); }
    std::string operator()(const op::optimizer_step&) const { return "optimizer_step"; }
};

} // namespace detail

/// One instruction in words: "backward_input 3 of microbatch 0", "send boundary 2 of microbatch 0 to rank 1".
[[nodiscard]] inline std::string to_text(const instruction& what) {
    return std::visit(detail::instruction_text{}, what);
}

/// One line for each instruction, after its position.
[[nodiscard]] inline std::string to_text(const program& of_rank) {
    std::string all = "rank " + std::to_string(of_rank.device) + '\n';
    for (std::size_t i = 0; i != of_rank.instructions.size(); ++i) {
        all += std::to_string(i) + ": " + to_text(of_rank.instructions[i]) + '\n';
    }
    return all;
}

} // namespace pulse
