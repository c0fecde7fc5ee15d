#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/check_cluster.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/plan/replica_place.hpp>
#include <pulse/simulate/grid_links.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] constexpr link shared_by(link line, int flows) noexcept {
    if (flows > 1) { line.bandwidth_gb_per_s /= flows; }
    return line;
}

constexpr void require_grid(const cluster& where, const rank_grid& grid) {
    if (grid.pipeline < 1 || grid.data < 1 || grid.size() > where.devices()) {
        throw input_error("pulse: simulate: a grid of " + std::to_string(grid.pipeline) + " x " +
                          std::to_string(grid.data) + " does not fit the cluster's " + std::to_string(where.devices()) +
                          (where.devices() == 1 ? " device" : " devices"));
    }
}

/// The one of two links that takes longer for a megabyte.
[[nodiscard]] constexpr link slower(const link& a, const link& b) noexcept {
    return b.transfer_us(1'000'000) > a.transfer_us(1'000'000) ? b : a;
}

/// The replica whose pipeline crosses between nodes most often; the first on ties.
[[nodiscard]] constexpr int widest_replica(const cluster& machine, const rank_grid& grid) noexcept {
    int widest = 0;
    int most = 0;
    for (int r = 0; r != grid.data; ++r) {
        int crossings = 0;
        for (int p = 1; p < grid.pipeline; ++p) {
            crossings += machine.node_of(grid.rank_of(p - 1, r)) != machine.node_of(grid.rank_of(p, r)) ? 1 : 0;
        }
        if (crossings > most) {
            widest = r;
            most = crossings;
        }
    }
    return widest;
}

} // namespace detail

PULSE_CONSTEXPR std::vector<link> pipeline_links(const cluster& machine, const rank_grid& grid) {
    const auto node = [&](int p, int r) { return machine.node_of(grid.rank_of(p, r)); };
    std::vector<link> links{};
    for (int a = 0; a != grid.pipeline; ++a) {
        for (int b = 0; b != grid.pipeline; ++b) {
            link slowest{};
            for (int r = 0; r != grid.data && a != b; ++r) {
                int flows = 0;
                for (int other = 0; other != grid.data; ++other) {
                    if (node(a, other) == node(a, r) && node(b, other) != node(a, r)) { ++flows; }
                }
                const bool inside = node(a, r) == node(b, r);
                const link line = inside ? machine.intra_node : detail::shared_by(machine.inter_node, flows);
                slowest = r == 0 ? line : detail::slower(slowest, line);
            }
            links.push_back(slowest);
        }
    }
    return links;
}

PULSE_CONSTEXPR std::vector<double> pipeline_speeds(const cluster& machine, const rank_grid& grid) {
    if (machine.unlike.empty()) { return {}; }
    check_unlike_devices(machine);
    detail::require_grid(machine, grid);
    return grid.least_of_replicas([&](int device) { return machine.speed_of(device); });
}

namespace detail {

/// The round in which replica r of pipeline device `p` sends `shares` shares to replica to(r).
template <class To>
[[nodiscard]] constexpr replica_round round_between(const cluster& machine, const rank_grid& grid, int p, int shares,
                                                    const To& to) {
    const auto node = [&](int r) { return static_cast<std::size_t>(machine.node_of(grid.rank_of(p, r))); };
    std::vector<int> out(static_cast<std::size_t>(machine.nodes), 0);
    std::vector<int> in(out.size(), 0);
    int most = 0;
    bool some_stay = false;
    for (int r = 0; r != grid.data; ++r) {
        if (node(r) == node(to(r))) {
            some_stay = true;
        } else {
            most = std::max({most, ++out[node(r)], ++in[node(to(r))]});
        }
    }
    if (most == 0) { return {machine.intra_node, 1, false, shares}; }
    const link queued = shared_by(machine.inter_node, most);
    const link slowest = some_stay ? slower(queued, machine.intra_node) : queued;
    // As long as the slowest message; message_us multiplies the bytes by `most`, so the bandwidth is multiplied too.
    return {{slowest.latency_us, slowest.bandwidth_gb_per_s * most}, most, true, shares};
}

} // namespace detail

PULSE_CONSTEXPR std::vector<replica_round> replica_rounds_of(const cluster& machine, const rank_grid& grid, int p,
                                                             replica_exchange how, int node_replicas) {
    const bool ring = node_replicas == 1 && how == replica_exchange::ring;
    std::vector<std::vector<replica_circle>> circles{}; // per replica
    for (int r = 0; r != grid.data; ++r) { circles.push_back(replica_place{grid, p, r, node_replicas}.circles()); }
    std::vector<replica_round> rounds{};
    for (std::size_t k = 0; k != circles.front().size(); ++k) {
        const replica_circle& first = circles.front()[k];
        for (int j = 1; j < first.size; ++j) {
            const int ahead = ring ? 1 : j;
            rounds.push_back(detail::round_between(machine, grid, p, first.shares, [&](int r) {
                const replica_circle& circle = circles[static_cast<std::size_t>(r)][k];
                return circle.replica((circle.here + ahead) % circle.size);
            }));
        }
    }
    return rounds;
}

PULSE_CONSTEXPR std::vector<int> possible_node_replicas(const cluster& machine, const rank_grid& grid) {
    const auto node = [&](int p, int r) { return machine.node_of(grid.rank_of(p, r)); };
    bool several = false;
    for (int p = 0; p != grid.pipeline; ++p) { several = several || node(p, 0) != node(p, grid.data - 1); }
    std::vector<int> sizes{};
    for (int size = 2; several && size < grid.data && grid.data % size == 0; size *= 2) {
        bool inside = true;
        for (int p = 0; p != grid.pipeline && inside; ++p) {
            // Nodes do not decrease with the replica, so the first and the last of a group decide.
            for (int r = 0; r < grid.data; r += size) { inside = inside && node(p, r) == node(p, r + size - 1); }
        }
        if (inside) { sizes.push_back(size); }
    }
    return sizes;
}

PULSE_CONSTEXPR simulation_options simulated_on(const cluster& where, const rank_grid& grid, replica_exchange how,
                                                int node_replicas) {
    detail::require_grid(where, grid);
    const int seen = detail::widest_replica(where, grid);
    const auto node = [&](int p) { return where.node_of(grid.rank_of(p, seen)); };
    simulation_options made{};
    made.links = pipeline_links(where, grid);
    made.device_speed = pipeline_speeds(where, grid);
    made.node_replicas = node_replicas;
    for (int a = 0; a != grid.pipeline; ++a) {
        for (int b = 0; b != grid.pipeline; ++b) {
            made.routes.push_back(node(a) == node(b) ? link_route{} : link_route{2 * node(a), 2 * node(b) + 1});
        }
    }
    for (int p = 0; p != grid.pipeline; ++p) {
        made.replica_rounds.push_back(replica_rounds_of(where, grid, p, how, node_replicas));
        const std::vector<replica_round>& rounds = made.replica_rounds.back();
        const bool leaves = std::any_of(rounds.begin(), rounds.end(), [](const replica_round& r) { return r.shared; });
        made.replica_routes.push_back(leaves ? link_route{2 * node(p), 2 * node(p) + 1} : link_route{});
    }
    return made;
}

} // namespace pulse
