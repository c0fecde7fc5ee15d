#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Up to this many stages on a device, all choices among them are tried.
inline constexpr int exhausted_stages = 10;

/// Chooses the stages, as flags, whose recomputation keeps each device of an ordered plan within its limit with the
/// least extra forward time; empty if no choice that is tried keeps some device within its limit.
///
/// For a fixed order of passes a device's program, and so its exact layout, depends on its own stages alone: each
/// device is solved separately. Among equal times fewer stages win, then earlier ones. With more than
/// `exhausted_stages`, the stages that save most bytes per forward time are added one by one until it fits.
[[nodiscard]] PULSE_CONSTEXPR std::vector<char> choose_recomputed_stages(plan ordered, const cost_table& costs,
                                                                         const parameter_memory& kept,
                                                                         const memory_limits& limits);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/recomputed_stages.ipp> // IWYU pragma: keep
#endif
