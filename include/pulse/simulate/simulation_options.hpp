#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/hardware/link.hpp>
#include <pulse/plan/parameter_memory.hpp>

namespace pulse {

/// Numbers (from 0) of the shared links that a message takes; -1 is none. With both -1 the pair of ranks has a
/// dedicated link.
struct link_route {
    int first{-1};
    int second{-1};

    [[nodiscard]] constexpr bool operator==(const link_route&) const = default;
};

namespace detail {

/// Calls `f` once with the number of every distinct link of a route.
template <class F>
constexpr void for_each_link(const link_route& route, F f) {
    if (route.first >= 0) { f(static_cast<std::size_t>(route.first)); }
    if (route.second >= 0 && route.second != route.first) { f(static_cast<std::size_t>(route.second)); }
}

} // namespace detail

/// One round of the exchange of shares between the replicas of a rank: every replica sends one message, all at once.
struct replica_round {
    link line{};
    /// Number of messages of the round that queue on one link.
    int messages{1};
    /// Whether the round uses the links of simulation_options::replica_routes.
    bool shared{true};
    /// Shares per message; over all rounds they add up to one less than the replicas.
    int shares{1};

    /// Time of the round for shares of `bytes` bytes.
    [[nodiscard]] constexpr double message_us(std::int64_t bytes) const noexcept {
        return line.transfer_us(messages * shares * bytes);
    }
    [[nodiscard]] constexpr bool operator==(const replica_round&) const = default;
};

/// Machine model of a simulated step; the default moves bytes in zero time.
struct simulation_options {
    /// Link between every two ranks, unless `links` is given.
    link between_ranks{};
    /// Row-major P x P, [from * P + to]; empty: `between_ranks` everywhere.
    std::vector<link> links{};
    /// Link between the data-parallel replicas of a rank, unless `replica_rounds` are given.
    link between_replicas{};
    /// Per rank: the rounds in which its replicas exchange D - 1 shares; empty: D - 1 rounds on `between_replicas`.
    std::vector<std::vector<replica_round>> replica_rounds{};
    /// plan::node_replicas of the plan that `replica_rounds` belong to.
    int node_replicas{1};
    /// Time of the optimizer step of each rank, unless `device_optimizer_us` is given.
    double optimizer_us{};
    /// Per rank; empty: `optimizer_us` everywhere.
    std::vector<double> device_optimizer_us{};
    /// Row-major P x P: the links that a pair's messages share with other pairs; empty: none. A message occupies all
    /// its links from its start until it has left, at the bandwidth of its pair; a link carries one message at a time.
    std::vector<link_route> routes{};
    /// Per rank: the links that its data-parallel replicas share with messages and with other ranks' replicas; empty:
    /// none. A reduction runs its rounds one after the other, to the owners and back, and queues for a shared link like
    /// any message.
    std::vector<link_route> replica_routes{};
    /// Per rank: compute speed relative to the cost table; empty: 1 everywhere.
    std::vector<double> device_speed{};
    /// What each rank stores for its parameters. With sharded optimizer state the sums of gradients are not sent back;
    /// the new weights are sent after the optimizer step instead.
    parameter_memory kept{};

    /// Number of rounds of an exchange between the `replicas` replicas of `rank`.
    [[nodiscard]] constexpr int round_count(std::size_t rank, int replicas) const noexcept {
        return replica_rounds.empty() ? replicas - 1 : static_cast<int>(replica_rounds[rank].size());
    }
    /// Round `number` of that exchange, counted from 1.
    [[nodiscard]] constexpr replica_round round(std::size_t rank, int number) const noexcept {
        return replica_rounds.empty() ? replica_round{between_replicas}
                                      : replica_rounds[rank][static_cast<std::size_t>(number - 1)];
    }
    /// Round `number` of the way back from the owners of shares: rounds with several shares per message come last.
    [[nodiscard]] constexpr replica_round round_back(std::size_t rank, int number) const noexcept {
        if (replica_rounds.empty()) { return round(rank, number); }
        const std::vector<replica_round>& all = replica_rounds[rank];
        const auto several = std::count_if(all.begin(), all.end(), [](const replica_round& r) { return r.shares > 1; });
        return round(rank, (number - 1 + static_cast<int>(several)) % static_cast<int>(all.size()) + 1);
    }
    [[nodiscard]] constexpr link_route replica_route(std::size_t rank) const noexcept {
        return replica_routes.empty() ? link_route{} : replica_routes[rank];
    }
    /// Whether the replicas of `rank` share links with others.
    [[nodiscard]] constexpr bool shares_links(std::size_t rank) const noexcept {
        return replica_route(rank).first >= 0 || replica_route(rank).second >= 0;
    }
    [[nodiscard]] constexpr double optimizer_us_of(std::size_t rank) const noexcept {
        return device_optimizer_us.empty() ? optimizer_us : device_optimizer_us[rank];
    }
};

} // namespace pulse
