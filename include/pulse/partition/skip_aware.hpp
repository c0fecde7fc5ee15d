#pragma once

#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/partition/explain.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The best folded partition over P devices with W waves, as find_skip_aware_partition defines it.
///
/// Throws infeasible_error with the sentence of explain_infeasible when there is none; otherwise as that function.
[[nodiscard]] constexpr partition skip_aware_partition(const cost_table& costs, int devices, int waves = 1,
                                                       const skip_aware_options& options = {}) {
    maybe_partition found = find_skip_aware_partition(costs, devices, waves, options);
    if (!found) { throw infeasible_error(explain_infeasible(costs, devices, waves, options)); }
    return *std::move(found);
}

} // namespace pulse
