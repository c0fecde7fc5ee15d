#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <pulse/partition/device_speed.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/partition/traffic.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Loads and traffic of a partition, for one microbatch. A load is the time that its device takes for it, us.
struct partition_report {
    std::vector<double> stage_load_us{}; ///< F + B + W of each stage
    std::vector<double> device_load_us{};
    double max_load_us{};
    /// Time of all layers if divided over all devices in proportion to speed, over greatest device load: 1 is perfect.
    double balance{};
    /// Folded only: sum over pairs of |load(stage s) - load(stage S-1-s)|.
    double imbalance_us{};
    traffic bytes{};
};

/// Reports on `cut`; `device_speed` and `routing` as in skip_aware_options. Requires a partition that passes
/// check_partition with `costs`. Throws input_error for bad speeds.
[[nodiscard]] constexpr partition_report report_of(const partition& cut, const cost_table& costs,
                                                   skip_routing routing = skip_routing::direct,
                                                   const std::vector<double>& device_speed = {}) {
    detail::check_device_speed(device_speed, cut.devices);
    partition_report report{};
    report.device_load_us.assign(static_cast<std::size_t>(cut.devices), 0.0);
    double total = 0.0;
    for (const stage& part : cut.stages) {
        double load = 0.0;
        for (int l = part.first_layer; l <= part.last_layer; ++l) {
            load += costs.layers[static_cast<std::size_t>(l)].load_us();
        }
        report.stage_load_us.push_back(load / detail::speed_of(device_speed, part.device));
        report.device_load_us[static_cast<std::size_t>(part.device)] += load;
        total += load;
    }
    double speed = 0.0;
    for (std::size_t d = 0; d != report.device_load_us.size(); ++d) {
        speed += detail::speed_of(device_speed, static_cast<int>(d));
        report.device_load_us[d] /= detail::speed_of(device_speed, static_cast<int>(d));
        report.max_load_us = std::max(report.max_load_us, report.device_load_us[d]);
    }
    report.balance = report.max_load_us > 0.0 ? total / (speed * report.max_load_us) : 1.0;
    if (cut.kind == placement::folded) {
        for (std::size_t s = 0; 2 * s < cut.stages.size(); ++s) {
            const double off = report.stage_load_us[s] - report.stage_load_us[cut.stages.size() - 1 - s];
            report.imbalance_us += off < 0.0 ? -off : off;
        }
    }
    report.bytes = traffic_of(cut, costs, routing);
    return report;
}

} // namespace pulse
