#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The best folded partition over P devices with W waves, as find_skip_aware_partition defines it.
///
/// Throws infeasible_error with the text of explain_infeasible if there is none, and otherwise as that function.
[[nodiscard]] PULSE_CONSTEXPR partition skip_aware_partition(const cost_table& costs, int devices, int waves = 1,
                                                             const skip_aware_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/skip_aware.ipp> // IWYU pragma: keep
#endif
