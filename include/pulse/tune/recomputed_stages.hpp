#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Up to so many stages on a device, every choice among them is looked at.
inline constexpr int exhausted_stages = 10;

/// The stages, as flags, whose recomputation keeps each device to its limit in an ordered plan, with the least forward
/// time run again on it; empty where none of a device's choices that are looked at keeps it to its limit.
///
/// In one order of passes a device's program, and so its exact layout, depends on its own stages alone: each device is
/// solved by itself. Among equal times fewer stages win, then earlier ones. Of more than `exhausted_stages` the ones
/// that save most bytes for their forward time are taken first, until it fits.
[[nodiscard]] PULSE_CONSTEXPR std::vector<char> choose_recomputed_stages(plan ordered, const cost_table& costs,
                                                                         const parameter_memory& kept,
                                                                         const memory_limits& limits);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/recomputed_stages.ipp> // IWYU pragma: keep
#endif
