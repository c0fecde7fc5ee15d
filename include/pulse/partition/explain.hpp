#pragma once

#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/partition/skip_aware_options.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// One sentence on why find_skip_aware_partition finds nothing: too few layers, too low a memory limit with the lowest
/// that suffices, or the blocking skip with the device count that it allows. Requires that it finds nothing.
[[nodiscard]] PULSE_INLINE std::string explain_infeasible(const cost_table& costs, int devices, int waves,
                                                          const skip_aware_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/explain.ipp> // IWYU pragma: keep
#endif
