#pragma once

#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/explain.hpp>
#include <pulse/partition/find_skip_aware.hpp>
#include <pulse/partition/maybe_partition.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/skip_aware.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

PULSE_CONSTEXPR partition skip_aware_partition(const cost_table& costs, int devices, int waves,
                                               const skip_aware_options& options) {
    maybe_partition found = find_skip_aware_partition(costs, devices, waves, options);
    if (!found) { throw infeasible_error(explain_infeasible(costs, devices, waves, options)); }
    return *std::move(found);
}

} // namespace pulse
