#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <pulse/plan/rank_grid.hpp>

namespace pulse {

/// A rank's place in the grid of the world: device `device` of the pipeline of replica `replica`.
struct replica_place {
    rank_grid grid{};
    int device{};
    int replica{};

    [[nodiscard]] constexpr int replicas() const noexcept { return grid.data; }
    /// The rank of the world that runs pipeline device `p` of this replica.
    [[nodiscard]] constexpr int rank_of_device(int p) const noexcept { return grid.rank_of(p, replica); }
    /// The rank of the world that runs this pipeline device of replica `r`.
    [[nodiscard]] constexpr int rank_of_replica(int r) const noexcept { return grid.rank_of(device, r); }
    [[nodiscard]] constexpr bool operator==(const replica_place&) const = default;
};

/// The place of a rank of the world.
[[nodiscard]] constexpr replica_place place_of(const rank_grid& grid, int rank) noexcept {
    return {grid, grid.device_of(rank), grid.replica_of(rank)};
}

/// Elements [first, first + size) of an array.
struct element_range {
    std::size_t first{};
    std::size_t size{};

    [[nodiscard]] constexpr bool operator==(const element_range&) const = default;
};

/// Share number `share` of `shares` of a layer's elements: shares are neighbours in order, cover the layer and differ
/// by one element at most; of fewer elements than shares some are empty.
///
/// Shares are of layers and not of stages, so that they are the same however a model is cut.
[[nodiscard]] constexpr element_range share_of(const element_range& layer, int shares, int share) noexcept {
    const auto d = static_cast<std::size_t>(shares);
    const auto before = [&](std::size_t s) { return layer.size / d * s + layer.size % d * s / d; };
    const std::size_t begin = before(static_cast<std::size_t>(share));
    return {layer.first + begin, before(static_cast<std::size_t>(share) + 1) - begin};
}

/// Share number `share` of every layer of a rank's parameters, without empty ones; in their order. `Block` has `first`
/// and `size`.
template <class Block>
[[nodiscard]] std::vector<element_range> shares_of(std::span<const Block> layers, int shares, int share) {
    std::vector<element_range> all;
    for (const Block& b : layers) {
        const element_range mine = share_of({b.first, b.size}, shares, share);
        if (mine.size != 0) { all.push_back(mine); }
    }
    return all;
}

namespace detail {

/// Whether a replica sends before it receives in round `round`: every second one of a circle in which each sends to the
/// next, so that the others, which receive first, are there.
[[nodiscard]] constexpr bool sends_first(int replica, int round, int replicas) noexcept {
    // A circle begins with its replica of least number, and there are as many circles as the divisor says.
    int before = 0;
    for (int at = replica; at >= std::gcd(round, replicas); at = (at + replicas - round) % replicas) { ++before; }
    return before % 2 == 0;
}

} // namespace detail

/// Calls send(to) and receive(from) for every other replica, in D - 1 rounds: in round j each sends to the one j after
/// it. Posts that follow it on every replica end even if a post returns only when its transfer is over: of the sends of
/// a circle, first those of its even places are made, the last one's behind the first's, then those of the odd ones.
template <class Send, class Receive>
constexpr void for_each_round(const replica_place& place, Send send, Receive receive) {
    const int replicas = place.replicas();
    for (int round = 1; round < replicas; ++round) {
        const bool sends = detail::sends_first(place.replica, round, replicas);
        if (sends) { send((place.replica + round) % replicas); }
        receive((place.replica + replicas - round) % replicas);
        if (!sends) { send((place.replica + round) % replicas); }
    }
}

} // namespace pulse
