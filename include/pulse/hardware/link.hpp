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

/// `count` links in parallel: their total bandwidth, the latency of one.
[[nodiscard]] constexpr link bundle(const link& one, int count) noexcept {
    return {one.latency_us, one.bandwidth_gb_per_s * count};
}

// Bandwidths are one way, from the makers' documents. Latencies are those of one message as communication libraries see
// it, rounded: assumptions, not figures of a maker.

/// Both NVLinks 2 between ring neighbours of a DGX-1 with V100, 25 GB/s each (NVIDIA DGX-1 with Tesla V100 whitepaper,
/// 2017: six links, two pairs and two single ones to four of the other seven).
inline constexpr link nvlink2_pair{.latency_us = 3.0, .bandwidth_gb_per_s = 50.0};
/// NVLink 3 of an A100 (NVIDIA A100 datasheet: 600 GB/s both ways together).
inline constexpr link nvlink3{.latency_us = 3.0, .bandwidth_gb_per_s = 300.0};
/// NVLink 4 of an H100 or H200 (NVIDIA H100 and H200 datasheets: 900 GB/s both ways together).
inline constexpr link nvlink4{.latency_us = 3.0, .bandwidth_gb_per_s = 450.0};
/// PCIe 3.0 x16 (8 GT/s x 16 lanes, 128b/130b).
inline constexpr link pcie3_x16{.latency_us = 5.0, .bandwidth_gb_per_s = 15.75};
/// PCIe 4.0 x16, one way (16 GT/s x 16 lanes, 128b/130b).
inline constexpr link pcie4_x16{.latency_us = 5.0, .bandwidth_gb_per_s = 31.5};
/// One of the three HCCS ports of an Ascend 910 (Huawei, Hot Chips 31, 2019: 240 Gb/s).
inline constexpr link hccs{.latency_us = 5.0, .bandwidth_gb_per_s = 30.0};
/// One InfiniBand port of four lanes (InfiniBand Trade Association roadmap): EDR 100 Gb/s.
inline constexpr link infiniband_edr{.latency_us = 10.0, .bandwidth_gb_per_s = 12.5};
/// HDR 200 Gb/s.
inline constexpr link infiniband_hdr{.latency_us = 10.0, .bandwidth_gb_per_s = 25.0};
/// NDR 400 Gb/s.
inline constexpr link infiniband_ndr{.latency_us = 10.0, .bandwidth_gb_per_s = 50.0};
/// RDMA over Ethernet at 100 Gb/s (IEEE 802.3bj; RoCE v2).
inline constexpr link roce_100g{.latency_us = 15.0, .bandwidth_gb_per_s = 12.5};

} // namespace pulse
