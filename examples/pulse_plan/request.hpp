#pragma once

#include <pulse/tune/cascade_plan.hpp>
#include <pulse/tune/tuning.hpp>

#include "arguments.hpp"

namespace pulse_plan {

/// Reads the files and looks up the names in `a`, and plans what it asks for.
///
/// Throws input_error, which names the argument, file or field, and as plan_for does.
[[nodiscard]] pulse::tuning plan_of(const arguments& a);

/// The same of a cascade with the second backbone, which is a model beside a model, a profile beside a profile. Throws
/// as plan_cascade_for does.
[[nodiscard]] pulse::cascade_tuning cascade_of(const arguments& a);

} // namespace pulse_plan
