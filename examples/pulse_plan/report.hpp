#pragma once

#include <string>

#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// The model, and the assumptions about the machine.
[[nodiscard]] std::string heading_text(const arguments& a, const pulse::tuning& found);

/// The cost of the frozen components where they run, compared with other ways to get their results; `without` is the
/// plan of the passes alone.
[[nodiscard]] std::string frozen_text(const pulse::tuning& found, const pulse::tuning& without);

/// The best candidates, and why the others lost.
[[nodiscard]] std::string ranking_text(const pulse::tuning& found);

/// The time to train the backbones one after the other, each with its own best plan.
[[nodiscard]] std::string cascade_text(const pulse::cascade_tuning& found);

} // namespace pulse_plan
