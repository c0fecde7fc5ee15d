#pragma once

#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// What a parameter keeps: "22 bytes kept of each (value 2, gradient 4, optimizer 16)".
[[nodiscard]] PULSE_INLINE std::string to_text(const parameter_memory& kept);

/// The plan for people: step, bound, gap and bubble, stages, devices with memory by kind, bytes beside what other
/// placements would send.
[[nodiscard]] PULSE_INLINE std::string plan_summary(const tuning& found);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/plan_summary.ipp> // IWYU pragma: keep
#endif
