#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Peak bytes of each device under a plan, on the replica that needs most: the memory of its step, its parameters with
/// all that is kept for them, slots for gradients of other replicas, and the backend's scratch.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const step_model& model,
                                                                   const std::vector<program>& programs,
                                                                   const parameter_memory& kept);

[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const plan& planned, const cost_table& costs,
                                                                   const parameter_memory& kept);

/// Peak bytes over all extents of a plan, whose steps run one at a time in the same memory.
[[nodiscard]] PULSE_CONSTEXPR std::vector<std::int64_t> peak_bytes(const planned& made);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/peak_bytes.ipp> // IWYU pragma: keep
#endif
