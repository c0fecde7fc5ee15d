#pragma once

#include <cstdint>
#include <vector>

#include <pulse/schedule/frozen_work.hpp>

namespace pulse {

/// Where a candidate runs its frozen components, and how that affects its step. Bytes are per device.
struct frozen_placement {
    /// For one step of one pipeline, with a list of hosts for every device.
    frozen_work work{};
    /// Weights of the layers that a device hosts, and the results that its stages read, for two steps.
    std::vector<std::int64_t> kept_bytes{};
    /// The sum over the hosted components of the live bytes of the largest hosted layer for one sample, with the
    /// activations that a split component leaves waiting.
    std::vector<std::int64_t> live_bytes{};
    /// Step time of the passes alone, us.
    double passes_step_us{};

    /// Frozen work of all devices together, us.
    [[nodiscard]] constexpr double work_us() const {
        double sum = 0;
        for (const frozen_component& c : work.components) { sum += least_work_us(c, work.samples); }
        return sum;
    }
};

} // namespace pulse
