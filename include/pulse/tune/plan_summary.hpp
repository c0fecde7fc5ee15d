#pragma once

#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// Bytes kept per parameter: "22 bytes kept of each (value 2, gradient 4, optimizer 16)".
[[nodiscard]] PULSE_INLINE std::string to_text(const parameter_memory& kept);

/// A readable summary of the plan: step, bound, gap and bubble, stages, devices with memory by kind, and bytes across
/// devices compared with other placements.
[[nodiscard]] PULSE_INLINE std::string plan_summary(const tuning& found);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/plan_summary.ipp> // IWYU pragma: keep
#endif
