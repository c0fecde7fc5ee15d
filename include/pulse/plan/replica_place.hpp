#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <pulse/plan/rank_grid.hpp>

namespace pulse {

/// Replicas that exchange shares among themselves: `size` of them, number i being replica first + i * step, and this
/// rank number `here`.
struct replica_circle {
    int first{};
    int step{1};
    int size{1};
    int here{};
    /// How many of the shares of all replicas number i adds: with one that of replica(i), else those whose numbers have
    /// the remainder i by size.
    int shares{1};

    [[nodiscard]] constexpr int replica(int i) const noexcept { return first + i * step; }
};

/// A rank's place in the grid of the world: device `device` of the pipeline of replica `replica`.
struct replica_place {
    rank_grid grid{};
    int device{};
    int replica{};
    /// plan::node_replicas.
    int node_replicas{1};

    [[nodiscard]] constexpr int replicas() const noexcept { return grid.data; }
    /// The rank of the world that runs pipeline device `p` of this replica.
    [[nodiscard]] constexpr int rank_of_device(int p) const noexcept { return grid.rank_of(p, replica); }
    /// The rank of the world that runs this pipeline device of replica `r`.
    [[nodiscard]] constexpr int rank_of_replica(int r) const noexcept { return grid.rank_of(device, r); }
    /// Through which circles shares come to the replicas that own them, one after the other: that of all replicas; or
    /// that of its group, where each adds the shares of all who have its place in theirs, and then that of these.
    /// What owners send back goes the other way.
    [[nodiscard]] constexpr std::vector<replica_circle> circles() const {
        const int inside = node_replicas;
        std::vector<replica_circle> all{};
        if (inside == 1) {
            all.push_back({0, 1, replicas(), replica, 1});
            return all;
        }
        const int groups = replicas() / inside;
        all.push_back({replica / inside * inside, 1, inside, replica % inside, groups});
        all.push_back({replica % inside, inside, groups, replica / inside, 1});
        return all;
    }
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

/// The shares, of those of `replicas`, that number `i` of a circle adds, in their order.
template <class Block>
[[nodiscard]] std::vector<element_range> shares_of(std::span<const Block> layers, int replicas,
                                                   const replica_circle& circle, int i) {
    std::vector<element_range> all;
    for (int k = 0; k != circle.shares; ++k) {
        const int share = circle.shares == 1 ? circle.replica(i) : i + k * circle.size;
        const std::vector<element_range> one = shares_of(layers, replicas, share);
        all.insert(all.end(), one.begin(), one.end());
    }
    return all;
}

namespace detail {

/// Whether number `here` of `size` sends before it receives in round `round`: every second one of those that send to
/// each other in a ring, so that the others, which receive first, are there.
[[nodiscard]] constexpr bool sends_first(int here, int round, int size) noexcept {
    // A ring begins with its least number, and there are as many rings as the divisor says.
    int before = 0;
    for (int at = here; at >= std::gcd(round, size); at = (at + size - round) % size) { ++before; }
    return before % 2 == 0;
}

} // namespace detail

/// Calls send(to) and receive(from) for every other number of a circle, in size - 1 rounds: in round j each sends to
/// the one j after it. Posts that follow it on every replica end even if a post returns only when its transfer is over:
/// of the sends of a ring, first those of its even places are made, the last one's behind the first's, then those of
/// the odd ones.
template <class Send, class Receive>
constexpr void for_each_round(const replica_circle& circle, Send send, Receive receive) {
    for (int round = 1; round < circle.size; ++round) {
        const bool sends = detail::sends_first(circle.here, round, circle.size);
        if (sends) { send((circle.here + round) % circle.size); }
        receive((circle.here + circle.size - round) % circle.size);
        if (!sends) { send((circle.here + round) % circle.size); }
    }
}

} // namespace pulse
