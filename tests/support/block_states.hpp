#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/train/rank_optimizer.hpp>

namespace pulse::test {

/// The rank state that a trainer keeps for each block of its parameters, in block order.
template <class Trainer>
[[nodiscard]] std::vector<train::rank_state> read_states(Trainer& rank) {
    std::vector<train::rank_state> all;
    for (const auto& block : rank.runner().parameters().blocks()) { all.push_back(rank.read_state(block)); }
    return all;
}

/// Restores those states and the progress of `steps` steps and `samples` samples.
template <class Trainer>
void set_states(Trainer& rank, const std::vector<train::rank_state>& all, std::int64_t steps, std::uint64_t samples) {
    std::size_t next = 0;
    for (const auto& block : rank.runner().parameters().blocks()) { rank.set_state(all.at(next++), block); }
    rank.set_progress(steps, samples);
}

} // namespace pulse::test
