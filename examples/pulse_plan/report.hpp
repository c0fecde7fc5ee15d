#pragma once

#include <string>
#include <vector>

#include <pulse/profile/cost_table.hpp>
#include <pulse/simulate/memory_timeline.hpp>
#include <pulse/tune/tuning.hpp>

#include "request.hpp"

namespace pulse_plan {

/// What the model is and what was assumed about the machine.
[[nodiscard]] std::string heading_text(const request& asked, const pulse::cost_table& costs);

/// The plan for people: stages, devices with memory by kind, step, bytes beside what other placements would send.
[[nodiscard]] std::string plan_text(const request& asked, const pulse::cost_table& costs, const pulse::tuning& found,
                                    const std::vector<pulse::memory_timeline>& memory);

/// The best candidates, and why the others lost.
[[nodiscard]] std::string ranking_text(const pulse::tuning& found);

} // namespace pulse_plan
