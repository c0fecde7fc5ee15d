#pragma once

#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>

namespace pulse {

/// Throws input_error, which names `source` and the first field that is wrong, unless the plan is whole and consistent:
/// degrees and counts agree, the stages cover the layers from 0 without holes on the devices that the placement says,
/// the schedule has every pass once, none overlapping on a device or before what it depends on, frozen tasks run every
/// layer of every component once on every sample, in order and on hosts, and numbers are finite and not negative.
PULSE_INLINE void require_valid(const plan& planned, std::string_view source);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/require_valid.ipp> // IWYU pragma: keep
#endif
