#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// Which replicas exchange shares while a gradient is reduced, unless those of a node reduce first; in every case each
/// replica sends 2 (D - 1) parts of 1/D.
enum class replica_exchange : std::uint8_t {
    direct, ///< every replica to every other one, as replica_sum does
    ring,   ///< every replica to the next one only, as all-reduce of NCCL and MPI may do
};

/// The link between every two devices of one pipeline: row-major P x P, [from * P + to].
///
/// All replicas run the same schedule, so replicas that send from one node to another at the same time share the node's
/// inter-node link equally. A step ends with the slowest replica, so each entry is the slowest link of its pair.
[[nodiscard]] PULSE_CONSTEXPR std::vector<link> pipeline_links(const cluster& machine, const rank_grid& grid);

/// Speed of each pipeline device relative to the device of the cost table; of several replicas the slowest counts.
/// Empty if the cluster's devices are alike. Throws input_error as check_unlike_devices and simulated_on do.
[[nodiscard]] PULSE_CONSTEXPR std::vector<double> pipeline_speeds(const cluster& machine, const rank_grid& grid);

/// The rounds in which the replicas of pipeline device `p` exchange shares. In round j = 1 .. D - 1 each replica sends
/// to the one j places after it (for_each_round), on a ring to the next one; with plan::node_replicas above 1, the
/// rounds are those of each of replica_place::circles. Messages between nodes queue for the link of the node that has
/// the most of them; a round inside nodes uses no shared link.
[[nodiscard]] PULSE_CONSTEXPR std::vector<replica_round> replica_rounds_of(const cluster& machine,
                                                                           const rank_grid& grid, int p,
                                                                           replica_exchange how, int node_replicas = 1);

/// Values of plan::node_replicas that reduce traffic between nodes: sizes of groups that each fit in one node; none if
/// all replicas do.
[[nodiscard]] PULSE_CONSTEXPR std::vector<int> possible_node_replicas(const cluster& machine, const rank_grid& grid);

/// Links, routes and speeds of P pipeline devices with D replicas each on a cluster; all replicas run at once. Each
/// ordered pair inside a node has a dedicated link; between nodes, link 2n leaves node n and link 2n + 1 enters it. The
/// routes are those of the replica that crosses nodes most often. Where replicas differ, because the node size is no
/// multiple of the pipeline size or vice versa, times are those of the slowest.
///
/// Exchanges between a rank's replicas occupy the outgoing and the incoming link of its node; the other nodes of the
/// replicas are loaded alike. Throws input_error for a grid without ranks or with more ranks than the cluster has
/// devices.
[[nodiscard]] PULSE_CONSTEXPR simulation_options simulated_on(const cluster& where, const rank_grid& grid,
                                                              replica_exchange how = replica_exchange::direct,
                                                              int node_replicas = 1);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/simulate/grid_links.ipp> // IWYU pragma: keep
#endif
