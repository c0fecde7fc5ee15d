#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <pulse/plan/rank_grid.hpp>

namespace pulse {

/// `size` replicas that exchange shares among themselves: member i is replica first + i * step, and this rank is member
/// `here`.
struct replica_circle {
    int first{};
    int step{1};
    int size{1};
    int here{};
    /// Number of shares that member i adds: if 1, the share of replica(i); otherwise all shares whose numbers are i
    /// modulo `size`.
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
    /// The circles through which shares reach the replicas that own them, in order: one circle of all replicas; or
    /// first the circle of this replica's group, where each member adds the shares of all replicas with its position in
    /// their groups, then the circle of those replicas. What owners send back goes through them in reverse.
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

/// Share number `share` of `shares` of a layer's elements. Shares are contiguous, in order, cover the layer and differ
/// by one element at most; if a layer has fewer elements than shares, some are empty.
///
/// Layers are split rather than stages, so that shares do not depend on how a model is cut.
[[nodiscard]] constexpr element_range share_of(const element_range& layer, int shares, int share) noexcept {
    const auto d = static_cast<std::size_t>(shares);
    const auto before = [&](std::size_t s) { return layer.size / d * s + layer.size % d * s / d; };
    const std::size_t begin = before(static_cast<std::size_t>(share));
    return {layer.first + begin, before(static_cast<std::size_t>(share) + 1) - begin};
}

/// Share number `share` of every layer of a rank's parameters, in their order, without empty ones. `Block` has `first`
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

/// The shares that member `i` of a circle adds, in their order, out of the `replicas` shares of every layer.
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

/// Whether member `here` of `size` sends before it receives in round `round`: every second member of a ring does, so
/// that the members in between, which receive first, are ready.
[[nodiscard]] constexpr bool sends_first(int here, int round, int size) noexcept {
    // A ring begins with its lowest member, and there are gcd(round, size) rings.
    int before = 0;
    for (int at = here; at >= std::gcd(round, size); at = (at + size - round) % size) { ++before; }
    return before % 2 == 0;
}

} // namespace detail

/// Calls send(to) and receive(from) for every other member of a circle, in size - 1 rounds: in round j each sends to
/// the member j after it. Posts in this order on every replica end even if a post returns only when its transfer is
/// over: in each ring, members at even positions send first, the last of them after the first, then those at odd
/// positions.
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
