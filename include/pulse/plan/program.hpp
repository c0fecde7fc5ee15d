#pragma once

#include <variant>
#include <vector>

#include <pulse/plan/instruction.hpp>

namespace pulse {

/// What one rank of a pipeline replica does in one step, in order.
struct program {
    int device{};
    std::vector<instruction> instructions{};

    [[nodiscard]] constexpr bool operator==(const program&) const = default;
};

/// Whether an instruction runs layers: forward, recompute, backward_input, backward_weight or encode.
[[nodiscard]] constexpr bool is_compute(const instruction& what) noexcept {
    return std::holds_alternative<op::forward>(what) || std::holds_alternative<op::recompute>(what) ||
           std::holds_alternative<op::backward_input>(what) || std::holds_alternative<op::backward_weight>(what) ||
           std::holds_alternative<op::encode>(what);
}

} // namespace pulse
