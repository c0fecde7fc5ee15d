#pragma once

#include <string>
#include <string_view>

#include <pulse/core/pass.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/program.hpp>

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
    case buffer_kind::paused: return "paused";
    case buffer_kind::result: return "result";
    case buffer_kind::prediction: return "prediction";
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
    case message_kind::encoding: return "encoding";
    case message_kind::encoded: return "encoded";
    case message_kind::prediction: return "prediction";
    }
    return "?";
}

/// "activation 3 of microbatch 0", with the layer, edge or stage of buffer_kind; "result of frozen task 2".
[[nodiscard]] PULSE_INLINE std::string to_text(const buffer_id& buffer);

/// "boundary 2 of microbatch 0", with the boundary or edge of message_kind; "gradient_sum 2 of share 1" between
/// replicas; "encoded by frozen task 2 for rank 0".
[[nodiscard]] PULSE_INLINE std::string to_text(const message_id& message);

/// "F of stage 1, microbatch 0".
[[nodiscard]] PULSE_INLINE std::string to_text(pass kind, int stage, int microbatch);

/// One instruction in words: "backward_input 3 of microbatch 0", "send boundary 2 of microbatch 0 to rank 1".
[[nodiscard]] PULSE_INLINE std::string to_text(const instruction& what);

/// A line for the rank, then one line per instruction, with its position.
[[nodiscard]] PULSE_INLINE std::string to_text(const program& of_rank);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/print.ipp> // IWYU pragma: keep
#endif
