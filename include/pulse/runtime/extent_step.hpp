#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/model/extent.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/runtime/any_transport.hpp>

namespace pulse::detail {

/// The plan and costs of one of the extents of a rank's steps.
struct extent_step {
    const plan* planned{};
    const cost_table* costs{};
    pulse::extent extent{};
};
/// The extents of a plan, which must outlive them. Throws input_error as check_moments does.
[[nodiscard]] PULSE_INLINE std::vector<extent_step> extent_steps(const planned& made);

/// The rank's place. Throws input_error unless the transport has the plan's ranks and the plans differ only in order.
[[nodiscard]] PULSE_INLINE replica_place placed(const std::vector<extent_step>& of, const any_transport& transport,
                                                rank_layout layout);

/// Names the rank and the instruction of an error; empty if memory for the text runs out.
[[nodiscard]] PULSE_INLINE std::string place_of_error(const any_transport& transport, std::size_t i,
                                                      const instruction& at, const char* what) noexcept;

} // namespace pulse::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/runtime/extent_step.ipp> // IWYU pragma: keep
#endif
