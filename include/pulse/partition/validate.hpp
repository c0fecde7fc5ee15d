#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Throws input_error naming the broken invariant unless `cut` has the stages of its placement on their devices, in
/// order and without gaps over all layers of `costs`, none empty, and, when folded, both ends of every skip on one
/// device.
PULSE_CONSTEXPR void check_partition(const partition& cut, const cost_table& costs);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/validate.ipp> // IWYU pragma: keep
#endif
