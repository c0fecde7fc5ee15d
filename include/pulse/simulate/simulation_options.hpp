#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

/// The shared links that a message takes, by number from 0; -1 is none. With none at all a pair of ranks has a link of its
/// own.
struct link_route {
    int first{-1};
    int second{-1};

    [[nodiscard]] constexpr bool operator==(const link_route&) const = default;
};

/// The world in which a step is simulated; the default moves bytes in no time.
struct simulation_options {
    /// Between every two ranks, unless `links` is given.
    link between_ranks{};
    /// Row-major P x P, [from * P + to]; empty means `between_ranks` everywhere.
    std::vector<link> links{};
    /// Between the data-parallel replicas of a rank.
    link between_replicas{};
    /// Time of the optimizer step of each rank.
    double optimizer_us{};
    /// Row-major P x P: what the messages of a pair share with those of other pairs; empty: nothing. A message occupies all
    /// its links from its start until it has left, at the speed that its pair has; links carry one message at a time.
    std::vector<link_route> routes{};
    /// Per rank: what the ring of its data-parallel replicas shares with messages and other rings; empty: nothing. On a
    /// shared link a reduction is its 2 (D - 1) messages, one after the other, and each takes its turn like any other.
    std::vector<link_route> replica_routes{};
    /// How many times faster than the cost table each rank computes; empty: all as the table says.
    std::vector<double> device_speed{};
    /// Copies of the parameters that the optimizer keeps beside values and gradients (AdamW: two moments), for the
    /// memory timeline.
    int optimizer_copies{2};
};

/// Links and routes of a pipeline whose rank r runs on device devices[r] of a cluster: a link of its own for each ordered
/// pair inside a node; between nodes, number 2n is what leaves node n and 2n + 1 what enters it. Throws input_error for a
/// device that the cluster does not have.
[[nodiscard]] constexpr simulation_options simulated_on(const cluster& where, const std::vector<int>& devices) {
    simulation_options made{};
    for (const int from : devices) {
        if (from < 0 || from >= where.devices()) {
            throw input_error("pulse: simulate: the cluster has no device " + std::to_string(from));
        }
    }
    for (const int from : devices) {
        for (const int to : devices) {
            const int source = where.node_of(from);
            const int target = where.node_of(to);
            made.links.push_back(where.between(from, to));
            made.routes.push_back(source == target ? link_route{} : link_route{2 * source, 2 * target + 1});
        }
    }
    return made;
}

} // namespace pulse
