#pragma once

#include <optional>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/launch/environment.hpp>

namespace pulse::launch {

/// This process's place among the ranks that run together. Machine fields that the launcher does not set are -1; the
/// rank_table of a rendezvous has those of every rank.
struct rank_identity {
    int rank{};
    int world_size{1};
    /// Position among the ranks of the same machine, and the number of those ranks.
    int local_rank{-1};
    int local_size{-1};
    /// Index of the machine.
    int node{-1};
    /// Where it comes from: "arguments", "PULSE_RANK", "torchrun", "Open MPI", "PMI", "Slurm", "single process".
    std::string source{"single process"};

    [[nodiscard]] bool operator==(const rank_identity&) const = default;
};

/// The identity from a program's command line; absent values are looked up in the environment.
struct identity_arguments {
    std::optional<int> rank{};
    std::optional<int> world_size{};
    std::optional<int> local_rank{};
    std::optional<int> local_size{};
    std::optional<int> node{};
};

/// Identifies this process from the arguments, else from PULSE_RANK and PULSE_WORLD_SIZE (and PULSE_LOCAL_RANK,
/// PULSE_LOCAL_SIZE, PULSE_NODE), else from the variables of torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm, else
/// as a single process.
///
/// Throws input_error naming the variable or argument that is not a number, lacks its partner, or contradicts another:
/// a rank outside the world, or a world smaller than another launcher says it has started (several processes would
/// then take the same rank). Arguments that give both rank and world size override all variables.
[[nodiscard]] PULSE_INLINE rank_identity identify(const identity_arguments& given = {}, const environment& from = {});

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/identity.ipp> // IWYU pragma: keep
#endif
