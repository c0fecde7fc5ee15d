#pragma once

#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// Reads the files and looks up the names in `a`, and makes the plan.
///
/// Throws input_error naming the argument, file or field, and whatever plan_for throws.
[[nodiscard]] pulse::tuning plan_of(const arguments& a);

/// The same for a cascade with the second backbone: a model with a model, a profile with a profile. Throws as
/// plan_cascade_for does.
[[nodiscard]] pulse::cascade_tuning cascade_of(const arguments& a);

} // namespace pulse_plan
