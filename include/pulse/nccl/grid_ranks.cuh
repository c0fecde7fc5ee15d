#pragma once

#include <string>

#include <pulse/core/error.hpp>
#include <pulse/plan/instruction.hpp>
#include <pulse/plan/print.hpp>
#include <pulse/plan/rank_grid.hpp>

namespace pulse::nccl {

/// Returns `grid` if it has `ranks` ranks; throws input_error otherwise.
[[nodiscard]] inline rank_grid fitting(const rank_grid& grid, int ranks) {
    if (grid.pipeline < 1 || grid.data < 1 || grid.size() != ranks) {
        throw input_error{"pulse: a grid of " + std::to_string(grid.pipeline) + " x " + std::to_string(grid.data) +
                          " ranks does not match the run's number of ranks, " + std::to_string(ranks)};
    }
    return grid;
}

/// The peer's rank in the communicator that carries a message of rank `rank`: its pipeline device within a replica, its
/// replica between replicas. Throws input_error when there is no such link.
[[nodiscard]] inline int rank_in_stream(const rank_grid& grid, int rank, int peer, message_id message) {
    const bool known = peer >= 0 && peer < grid.size() && peer != rank;
    if (is_between_replicas(message.kind)) {
        if (known && grid.device_of(peer) == grid.device_of(rank)) { return grid.replica_of(peer); }
    } else if (known && grid.replica_of(peer) == grid.replica_of(rank)) {
        return grid.device_of(peer);
    }
    throw input_error{"pulse: there is no link from rank " + std::to_string(rank) + " to rank " + std::to_string(peer) +
                      " for " + to_text(message)};
}

} // namespace pulse::nccl
