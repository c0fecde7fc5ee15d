#pragma once

#include <cstddef>
#include <vector>

#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/rank_grid.hpp>

namespace pulse {

namespace detail {

[[nodiscard]] constexpr link shared_by(link line, int flows) noexcept {
    if (flows > 1) { line.bandwidth_gb_per_s /= flows; }
    return line;
}

/// Of two links the one that is slower for a megabyte.
[[nodiscard]] constexpr link slower(const link& a, const link& b) noexcept {
    return b.transfer_us(1'000'000) > a.transfer_us(1'000'000) ? b : a;
}

} // namespace detail

/// What lies between every two devices of one pipeline: row-major P x P, [from * P + to].
///
/// All replicas run the same schedule, so those that send from one node to another at the same time share that node's link
/// to the others in equal parts. A step ends with the slowest replica: each entry is the slowest of its pair.
[[nodiscard]] constexpr std::vector<link> pipeline_links(const cluster& machine, const rank_grid& grid) {
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

/// The ring over the D replicas of one pipeline device, in the order of their ranks.
struct replica_ring {
    /// The slowest link of the ring when no other ring uses it.
    link line{};
    /// Rings of one group share a node's link to the other nodes and take turns on it; the least of their devices.
    int group{};
};

/// The ring of every pipeline device.
[[nodiscard]] constexpr std::vector<replica_ring> replica_rings(const cluster& machine, const rank_grid& grid) {
    std::vector<replica_ring> rings{};
    std::vector<std::vector<int>> crossed{}; // nodes whose outer link a ring uses
    for (int p = 0; p != grid.pipeline; ++p) {
        replica_ring ring{machine.intra_node, p};
        crossed.emplace_back();
        for (int r = 0; r != grid.data; ++r) {
            const int here = machine.node_of(grid.rank_of(p, r));
            const int next = machine.node_of(grid.rank_of(p, (r + 1) % grid.data));
            if (here == next) { continue; }
            crossed.back().push_back(here);
            ring.line = detail::slower(ring.line, machine.inter_node);
        }
        rings.push_back(ring);
    }
    const auto share = [&](std::size_t a, std::size_t b) {
        for (const int x : crossed[a]) {
            for (const int y : crossed[b]) {
                if (x == y) { return true; }
            }
        }
        return false;
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t a = 0; a != rings.size(); ++a) {
            for (std::size_t b = 0; b != rings.size(); ++b) {
                if (rings[b].group < rings[a].group && share(a, b)) {
                    rings[a].group = rings[b].group;
                    changed = true;
                }
            }
        }
    }
    return rings;
}

} // namespace pulse
