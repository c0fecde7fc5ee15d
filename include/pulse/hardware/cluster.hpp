#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

/// One device of a cluster whose devices differ.
struct unlike_device {
    label device{};
    std::int64_t memory_bytes{};
    /// Compute speed relative to the device of the cost table.
    double relative_speed{1.0};

    [[nodiscard]] constexpr bool operator==(const unlike_device&) const = default;
};

/// Nodes of equal size, with equal devices unless `unlike` lists them. Device i is in node i / devices_per_node.
///
/// Every two devices of a node have a dedicated link in each direction; all devices of a node share one inter-node link
/// in each direction.
struct cluster {
    label name{};
    int nodes{1};
    int devices_per_node{1};
    /// Memory of one device; the minimum if devices are unlike.
    std::int64_t memory_bytes{};
    link intra_node{};
    link inter_node{};
    /// All devices in order; empty if they are alike.
    std::vector<unlike_device> unlike{};

    [[nodiscard]] constexpr int devices() const noexcept { return nodes * devices_per_node; }
    [[nodiscard]] constexpr int node_of(int device) const noexcept { return device / devices_per_node; }
    [[nodiscard]] constexpr std::int64_t memory_of(int device) const noexcept {
        return unlike.empty() ? memory_bytes : unlike[static_cast<std::size_t>(device)].memory_bytes;
    }
    [[nodiscard]] constexpr std::int64_t least_memory_bytes() const noexcept {
        std::int64_t least = unlike.empty() ? memory_bytes : unlike.front().memory_bytes;
        for (const unlike_device& one : unlike) { least = std::min(least, one.memory_bytes); }
        return least;
    }
    [[nodiscard]] constexpr double speed_of(int device) const noexcept {
        return unlike.empty() ? 1.0 : unlike[static_cast<std::size_t>(device)].relative_speed;
    }
    [[nodiscard]] constexpr bool operator==(const cluster&) const = default;
};

} // namespace pulse
