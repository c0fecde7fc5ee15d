#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>

namespace pulse {

/// Throws input_error naming the field unless the cluster's devices are alike or all of them are listed, each with
/// memory and a relative speed from 0.001 to 1000.
constexpr void check_unlike_devices(const cluster& c) {
    if (c.unlike.empty()) { return; }
    if (c.unlike.size() != static_cast<std::size_t>(c.devices())) {
        throw input_error("devices must have nodes x devices_per_node entries (" + std::to_string(c.devices()) +
                          "), not " + std::to_string(c.unlike.size()));
    }
    for (std::size_t d = 0; d != c.unlike.size(); ++d) {
        constexpr double most = 1000;
        const unlike_device& one = c.unlike[d];
        if (one.memory_bytes < 1) {
            throw input_error("devices[" + std::to_string(d) + "].memory_bytes must be at least 1");
        }
        if (!(one.relative_speed >= 1 / most && one.relative_speed <= most)) {
            throw input_error("devices[" + std::to_string(d) + "].relative_speed must be from 0.001 to 1000");
        }
    }
}

/// Throws input_error naming the field unless the cluster has a node, a device per node and memory, the number of
/// devices fits an int, unlike devices pass check_unlike_devices and memory_bytes is their minimum, latencies are
/// finite and not negative, and every link that a transfer can use has a positive, finite bandwidth.
///
/// A cluster of one node needs no inter-node link, a node of one device no intra-node link: their bandwidths may be 0.
constexpr void check_cluster(const cluster& c) {
    if (c.nodes < 1) { throw input_error("nodes must be at least 1"); }
    if (c.devices_per_node < 1) { throw input_error("devices_per_node must be at least 1"); }
    if (std::int64_t{c.nodes} * c.devices_per_node > std::numeric_limits<int>::max()) {
        throw input_error("devices_per_node is out of range: nodes x devices_per_node must fit an int");
    }
    check_unlike_devices(c);
    if (c.memory_bytes < 1) { throw input_error("memory_bytes must be at least 1"); }
    if (c.memory_bytes != c.least_memory_bytes()) {
        throw input_error("memory_bytes must be the smallest of all devices");
    }
    const auto finite = [](double value) { return value >= 0.0 && value <= std::numeric_limits<double>::max(); };
    if (!finite(c.intra_node.latency_us)) {
        throw input_error("intra_node.latency_us must be finite and not negative");
    }
    if (!finite(c.inter_node.latency_us)) {
        throw input_error("inter_node.latency_us must be finite and not negative");
    }
    const auto carries = [&finite](const link& l, bool used) {
        return finite(l.bandwidth_gb_per_s) && (l.bandwidth_gb_per_s > 0.0 || !used);
    };
    if (!carries(c.intra_node, c.devices_per_node > 1)) {
        throw input_error("intra_node.bandwidth_gb_per_s must be finite and positive");
    }
    if (!carries(c.inter_node, c.nodes > 1)) {
        throw input_error("inter_node.bandwidth_gb_per_s must be finite and positive");
    }
}

} // namespace pulse
