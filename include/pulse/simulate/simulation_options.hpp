#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/hardware/link.hpp>
#include <pulse/plan/parameter_memory.hpp>

namespace pulse {

/// The shared links that a message takes, by number from 0; -1 is none. With none at all a pair of ranks has a link of
/// its own.
struct link_route {
    int first{-1};
    int second{-1};

    [[nodiscard]] constexpr bool operator==(const link_route&) const = default;
};

namespace detail {

/// Calls `f` with the number of every link of a route, once.
template <class F>
constexpr void for_each_link(const link_route& route, F f) {
    if (route.first >= 0) { f(static_cast<std::size_t>(route.first)); }
    if (route.second >= 0 && route.second != route.first) { f(static_cast<std::size_t>(route.second)); }
}

} // namespace detail

/// One of the rounds in which the replicas of a rank exchange shares: each sends one message, all at once.
struct replica_round {
    link line{};
    /// How many messages of the round one link carries, one behind the other.
    int messages{1};
    /// Whether the round takes the links of simulation_options::replica_routes.
    bool shared{true};
    /// How many shares a message is, each of which stands for those of as many replicas.
    int shares{1};

    /// Time of the round where a share has these bytes.
    [[nodiscard]] constexpr double message_us(std::int64_t bytes) const noexcept {
        return line.transfer_us(messages * shares * bytes);
    }
    [[nodiscard]] constexpr bool operator==(const replica_round&) const = default;
};

/// The world in which a step is simulated; the default moves bytes in no time.
struct simulation_options {
    /// Between every two ranks, unless `links` is given.
    link between_ranks{};
    /// Row-major P x P, [from * P + to]; empty means `between_ranks` everywhere.
    std::vector<link> links{};
    /// Between the data-parallel replicas of a rank, unless `replica_rounds` are given.
    link between_replicas{};
    /// Per rank: the rounds of an exchange between its replicas, of D - 1 shares; empty: D - 1 of `between_replicas`.
    std::vector<std::vector<replica_round>> replica_rounds{};
    /// plan::node_replicas of the plan whose rounds these are.
    int node_replicas{1};
    /// Time of the optimizer step of each rank, unless `device_optimizer_us` is given.
    double optimizer_us{};
    /// Per rank; empty means `optimizer_us` everywhere.
    std::vector<double> device_optimizer_us{};
    /// Row-major P x P: what the messages of a pair share with those of other pairs; empty: nothing. A message occupies
    /// all its links from its start until it has left, at the speed that its pair has; links carry one message at a
    /// time.
    std::vector<link_route> routes{};
    /// Per rank: what its data-parallel replicas share with messages and with other ranks' replicas; empty: nothing. A
    /// reduction is its rounds, there and back, one after the other, and on a shared link each takes its turn like any
    /// message.
    std::vector<link_route> replica_routes{};
    /// How many times faster than the cost table each rank computes; empty: all as the table says.
    std::vector<double> device_speed{};
    /// What each rank keeps of its parameters. Where the optimizer's state is sharded, sums are not sent back, but new
    /// weights are after the optimizer step.
    parameter_memory kept{};

    /// How many rounds the replicas of `rank` take, of which there are `replicas`.
    [[nodiscard]] constexpr int round_count(std::size_t rank, int replicas) const noexcept {
        return replica_rounds.empty() ? replicas - 1 : static_cast<int>(replica_rounds[rank].size());
    }
    /// Their round of this number, from 1 on.
    [[nodiscard]] constexpr replica_round round(std::size_t rank, int number) const noexcept {
        return replica_rounds.empty() ? replica_round{between_replicas}
                                      : replica_rounds[rank][static_cast<std::size_t>(number - 1)];
    }
    /// Likewise on the way back from the owners of shares: those of several shares are the last.
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
