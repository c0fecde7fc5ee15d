#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What a partition amounts to, for one microbatch. A load is the time that its device takes for it.
struct partition_report {
    std::vector<double> stage_load_us{}; ///< F + B + W of each stage
    std::vector<double> device_load_us{};
    double max_load_us{};
    /// Time that all devices would take together over greatest device load: 1 is perfect balance.
    double balance{};
    int binding_device{}; ///< the device with the greatest load
    int binding_stage{};  ///< its heaviest stage
    /// Folded only: sum over pairs of |load(stage s) - load(stage S-1-s)|.
    double imbalance_us{};
    traffic bytes{};
};

/// Sums up `cut`; `device_speed` and `routing` as in skip_aware_options. Requires a partition that passes
/// check_partition with `costs`. Throws input_error for bad speeds.
[[nodiscard]] PULSE_CONSTEXPR partition_report report_of(const partition& cut, const cost_table& costs,
                                                         skip_routing routing = skip_routing::direct,
                                                         const std::vector<double>& device_speed = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/report.ipp> // IWYU pragma: keep
#endif
