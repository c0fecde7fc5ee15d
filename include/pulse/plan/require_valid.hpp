#pragma once

#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>

namespace pulse {

/// Throws input_error, naming `source` and the first wrong field, unless the plan is complete and consistent: degrees
/// and counts agree; the stages cover the layers from 0 without gaps, on the devices of the placement; the schedule has
/// every pass once, without overlap on a device and after its dependencies; frozen tasks run every layer of every
/// component once on every sample, in order and on hosts; numbers are finite and not negative.
PULSE_INLINE void require_valid(const plan& planned, std::string_view source);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/require_valid.ipp> // IWYU pragma: keep
#endif
