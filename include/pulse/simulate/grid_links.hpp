#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// To whom replicas send while a gradient is reduced, unless those of a node do so first; either way each sends
/// 2 (D - 1) D-th parts.
enum class replica_exchange : std::uint8_t {
    direct, ///< its share to every other one, as replica_sum does
    ring,   ///< to the next one alone, as all-reduce of NCCL and MPI may do
};

/// What lies between every two devices of one pipeline: row-major P x P, [from * P + to].
///
/// All replicas run the same schedule, so those that send from one node to another at the same time share that node's
/// link to the others in equal parts. A step ends with the slowest replica: each entry is the slowest of its pair.
[[nodiscard]] PULSE_CONSTEXPR std::vector<link> pipeline_links(const cluster& machine, const rank_grid& grid);

/// The speed of each of a pipeline's devices, relative to the device that costs are of; of several replicas the
/// slowest. Empty where the cluster's devices are alike. Throws input_error as check_unlike_devices and simulated_on
/// do.
[[nodiscard]] PULSE_CONSTEXPR std::vector<double> pipeline_speeds(const cluster& machine, const rank_grid& grid);

/// The rounds in which the replicas of pipeline device `p` exchange shares: in round j = 1 .. D - 1 each sends to the
/// one j after it (for_each_round), or on a ring to the next; with plan::node_replicas above 1, in those of each of
/// replica_place::circles. A round's messages between nodes queue for the link of the node that has most of them; a
/// round inside nodes is shared with nobody.
[[nodiscard]] PULSE_CONSTEXPR std::vector<replica_round> replica_rounds_of(const cluster& machine,
                                                                           const rank_grid& grid, int p,
                                                                           replica_exchange how, int node_replicas = 1);

/// What plan::node_replicas can be for less traffic between nodes: groups whose replicas are in one node, where all are
/// in several.
[[nodiscard]] PULSE_CONSTEXPR std::vector<int> possible_node_replicas(const cluster& machine, const rank_grid& grid);

/// Links, routes and speeds of P pipeline devices with D replicas each on a cluster, in a world that all replicas enter
/// at once: a link of its own for each ordered pair inside a node; between nodes, number 2n is what leaves node n and
/// 2n + 1 what enters it. The routes are those of one replica. Where replicas are not alike, because nodes are no
/// multiple of pipelines or the other way round, times are those of the slowest.
///
/// Between nodes, a rank's replicas take what leaves its node and what enters it: on every node of theirs the same
/// happens. Throws input_error for a grid without ranks or with more than the cluster has devices.
[[nodiscard]] PULSE_CONSTEXPR simulation_options simulated_on(const cluster& where, const rank_grid& grid,
                                                              replica_exchange how = replica_exchange::direct,
                                                              int node_replicas = 1);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/simulate/grid_links.ipp> // IWYU pragma: keep
#endif
