#pragma once

#include <cstdint>

#include <pulse/core/label.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

/// Equal devices in equal nodes. Device i is in node i / devices_per_node.
///
/// Between two devices of one node there is a link of their own each way; all devices of a node share one inter-node
/// link each way.
struct cluster {
    label name{};
    int nodes{1};
    int devices_per_node{1};
    /// Of one device.
    std::int64_t memory_bytes{};
    link intra_node{};
    link inter_node{};

    [[nodiscard]] constexpr int devices() const noexcept { return nodes * devices_per_node; }
    [[nodiscard]] constexpr int node_of(int device) const noexcept { return device / devices_per_node; }
    /// The link between two different devices.
    [[nodiscard]] constexpr const link& between(int a, int b) const noexcept {
        return node_of(a) == node_of(b) ? intra_node : inter_node;
    }
    [[nodiscard]] constexpr bool operator==(const cluster&) const = default;
};

} // namespace pulse
