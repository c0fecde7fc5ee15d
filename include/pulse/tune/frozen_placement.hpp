#pragma once

#include <cstdint>
#include <vector>

#include <pulse/schedule/frozen_work.hpp>

namespace pulse {

/// Where a candidate encodes, and what that makes of its step. Bytes are per device.
struct frozen_placement {
    /// For one step of one pipeline, with a list of hosts for every device.
    frozen_work work{};
    /// Weights of the layers that a device hosts, and of two steps the results that its stages read.
    std::vector<std::int64_t> kept_bytes{};
    /// The sum over the hosted components of what the largest hosted layer needs for one sample, with the activations
    /// that a split component leaves waiting.
    std::vector<std::int64_t> live_bytes{};
    /// The step of the passes alone.
    double passes_step_us{};

    /// Microseconds of all devices together.
    [[nodiscard]] constexpr double work_us() const {
        double sum = 0;
        for (const frozen_component& c : work.components) { sum += least_work_us(c, work.samples); }
        return sum;
    }
};

} // namespace pulse
