#pragma once

#include <string>

#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// What the model is and what was assumed about the machine.
[[nodiscard]] std::string heading_text(const arguments& a, const pulse::tuning& found);

/// The best candidates, and why the others lost.
[[nodiscard]] std::string ranking_text(const pulse::tuning& found);

} // namespace pulse_plan
