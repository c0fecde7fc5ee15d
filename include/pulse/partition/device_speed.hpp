#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>

namespace pulse::detail {

/// Throws input_error unless `device_speed` is empty (all devices are alike) or has one finite value above 0 for each
/// of `devices`. A stage takes the times of the cost table divided by its device's speed.
constexpr void check_device_speed(const std::vector<double>& device_speed, int devices) {
    if (device_speed.empty()) { return; }
    if (device_speed.size() != static_cast<std::size_t>(devices)) {
        throw input_error("device_speed: it must have one value per device (" + std::to_string(devices) + "), not " +
                          std::to_string(device_speed.size()));
    }
    for (std::size_t d = 0; d != device_speed.size(); ++d) {
        if (!(device_speed[d] > 0.0) || device_speed[d] > std::numeric_limits<double>::max()) {
            throw input_error("device_speed: device " + std::to_string(d) + ": it must be a number above 0");
        }
    }
}

/// Speed of a device relative to the device of the cost table; 1 if none are given.
[[nodiscard]] constexpr double speed_of(const std::vector<double>& device_speed, int device) noexcept {
    return device_speed.empty() ? 1.0 : device_speed[static_cast<std::size_t>(device)];
}

} // namespace pulse::detail
