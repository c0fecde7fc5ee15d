#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// How much load a sequential partition may trade for bytes, and how its skips travel.
struct sequential_options {
    /// A cut whose greatest stage load is at most (1 + slack) times the least one may be taken if it sends fewer bytes.
    double slack{0.0};
    skip_routing routing{skip_routing::relayed};
    /// Relative speed of each device: a device's load is the time of its layers divided by it. Empty: all are alike.
    std::vector<double> device_speed{};
};

/// The baseline: P contiguous stages, stage s on device s, with the least greatest load F+B+W and, within the slack of
/// that, the fewest bytes across boundaries, including skips as `routing` sends them. Exact.
///
/// Throws infeasible_error if the model has fewer layers than devices, input_error for a bad table or option.
[[nodiscard]] PULSE_CONSTEXPR partition sequential_partition(const cost_table& costs, int devices,
                                                             const sequential_options& options = {});

/// P devices with `chunks` stages each, stage s on device s mod P: the cut with the least greatest load of a single
/// stage and, among those, the fewest bytes of main activations. Does not optimize loads of whole devices or bytes of
/// skips. `device_speed` as in sequential_options.
///
/// Throws as sequential_partition does.
[[nodiscard]] PULSE_CONSTEXPR partition interleaved_partition(const cost_table& costs, int devices, int chunks,
                                                              const std::vector<double>& device_speed = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/sequential.ipp> // IWYU pragma: keep
#endif
