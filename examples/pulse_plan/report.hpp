#pragma once

#include <string>

#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// What the model is and what was assumed about the machine.
[[nodiscard]] std::string heading_text(const arguments& a, const pulse::tuning& found);

/// What the frozen components cost where they run, and against other ways to have their results; `without` is the plan
/// of the passes alone.
[[nodiscard]] std::string frozen_text(const pulse::tuning& found, const pulse::tuning& without);

/// The best candidates, and why the others lost.
[[nodiscard]] std::string ranking_text(const pulse::tuning& found);

/// What training the backbones one after the other takes, each with its own best plan.
[[nodiscard]] std::string cascade_text(const pulse::cascade_tuning& found);

} // namespace pulse_plan
