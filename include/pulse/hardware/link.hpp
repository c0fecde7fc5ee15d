#pragma once

#include <cstdint>

namespace pulse {

/// A link between two devices: time to move b bytes = latency + b / bandwidth. 1 GB = 10^9 bytes.
struct link {
    double latency_us{};
    double bandwidth_gb_per_s{};

    /// Microseconds to move `bytes`; latency only when no bandwidth is stated (0 stands for unlimited).
    [[nodiscard]] constexpr double transfer_us(std::int64_t bytes) const noexcept {
        const double moving = bandwidth_gb_per_s > 0.0 ? static_cast<double>(bytes) / (bandwidth_gb_per_s * 1e3) : 0.0;
        return latency_us + moving;
    }
    [[nodiscard]] constexpr bool operator==(const link&) const = default;
};

/// NVLink 3 of an A100 (NVIDIA A100 datasheet: 600 GB/s both ways together).
inline constexpr link nvlink3{.latency_us = 3.0, .bandwidth_gb_per_s = 300.0};
/// PCIe 4.0 x16, one way (16 GT/s x 16 lanes, 128b/130b).
inline constexpr link pcie4_x16{.latency_us = 5.0, .bandwidth_gb_per_s = 31.5};

} // namespace pulse
