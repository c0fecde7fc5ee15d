#pragma once

#include <optional>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/launch/environment.hpp>

namespace pulse::launch {

/// Who this process is among those that run together. What a launcher does not say of the machines is -1 until all
/// ranks have met (rendezvous).
struct rank_identity {
    int rank{};
    int world_size{1};
    /// Position among the ranks of the same machine, and their number.
    int local_rank{-1};
    int local_size{-1};
    /// Number of the machine.
    int node{-1};
    /// Who said so: "arguments", "PULSE_RANK", "torchrun", "Open MPI", "PMI", "Slurm", "single process".
    std::string source{"single process"};

    [[nodiscard]] bool operator==(const rank_identity&) const = default;
};

/// What a program was told on its command line; what is absent is looked for in the environment.
struct identity_arguments {
    std::optional<int> rank{};
    std::optional<int> world_size{};
    std::optional<int> local_rank{};
    std::optional<int> local_size{};
    std::optional<int> node{};
};

/// Who this process is: from the arguments, else from PULSE_RANK and PULSE_WORLD_SIZE (and PULSE_LOCAL_RANK,
/// PULSE_LOCAL_SIZE, PULSE_NODE), else from the variables of torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm, else
/// it is alone.
///
/// Throws input_error naming the variable or argument that is no number, is there without its partner, or contradicts
/// another: a rank outside the world, or a world with fewer ranks than another launcher says it has started (each of
/// several copies would believe to be the same rank). Arguments that give both rank and world size win over all
/// variables.
[[nodiscard]] PULSE_INLINE rank_identity identify(const identity_arguments& given = {}, const environment& from = {});

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/identity.ipp> // IWYU pragma: keep
#endif
