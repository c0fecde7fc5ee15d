#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <pulse/launch/assembly.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/tcp_store.hpp>

namespace pulse::launch {

/// A rank after the rendezvous.
struct member {
    /// Name of its machine.
    std::string host{};
    std::int64_t process{};
    /// Position among the ranks of its machine, the number of those ranks, and the index of the machine.
    int local_rank{};
    int local_size{};
    int node{};

    [[nodiscard]] bool operator==(const member&) const = default;
};

/// All ranks of a run; every rank has the same table.
struct rank_table {
    /// One per rank of the world.
    std::vector<member> ranks{};
    /// Drawn by rank 0. A connection that presents it belongs to this run.
    std::uint64_t secret{};

    [[nodiscard]] bool one_machine() const noexcept {
        return std::all_of(ranks.begin(), ranks.end(), [](const member& m) { return m.node == 0; });
    }
    /// Text such as "rank 3 (host node7, process 4711)".
    [[nodiscard]] std::string name_of(int rank) const {
        const member& m = ranks[static_cast<std::size_t>(rank)];
        return "rank " + std::to_string(rank) + " (host " + m.host + ", process " + std::to_string(m.process) + ")";
    }
    [[nodiscard]] bool operator==(const rank_table&) const = default;
};

/// This machine's name and its boot id: containers on different machines may share a name.
[[nodiscard]] inline std::pair<std::string, std::string> this_machine() {
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    std::string boot;
    std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
    return {host.data(), boot};
}

namespace detail {

/// What a rank brings to the rendezvous.
struct arrival {
    int world_size{};
    std::string host{};
    std::string boot{};
    std::int64_t process{};
    int local_rank{};
};

[[nodiscard]] inline std::string to_bytes(const arrival& a) {
    return frame_writer{}
        .number(static_cast<std::uint64_t>(a.world_size))
        .text(a.host)
        .text(a.boot)
        .number(static_cast<std::uint64_t>(a.process))
        .number(static_cast<std::uint64_t>(a.local_rank))
        .bytes();
}
[[nodiscard]] inline arrival read_arrival(std::string_view bytes) {
    frame_reader from{bytes};
    arrival a;
    a.world_size = from.integer();
    a.host = from.text();
    a.boot = from.text();
    a.process = static_cast<std::int64_t>(from.number());
    a.local_rank = from.integer();
    return a;
}

[[nodiscard]] inline std::string to_bytes(const rank_table& table) {
    frame_writer all;
    all.number(table.secret).number(table.ranks.size());
    for (const member& m : table.ranks) {
        all.text(m.host).number(static_cast<std::uint64_t>(m.process)).number(static_cast<std::uint64_t>(m.local_rank));
        all.number(static_cast<std::uint64_t>(m.local_size)).number(static_cast<std::uint64_t>(m.node));
    }
    return all.bytes();
}
[[nodiscard]] inline rank_table read_table(std::string_view bytes) {
    frame_reader from{bytes};
    rank_table table;
    table.secret = from.number();
    for (std::uint64_t left = from.number(); left != 0; --left) {
        member& m = table.ranks.emplace_back();
        m.host = from.text();
        m.process = static_cast<std::int64_t>(from.number());
        m.local_rank = from.integer();
        m.local_size = from.integer();
        m.node = from.integer();
    }
    return table;
}

/// Numbers the machines and gives every rank its place on its machine. Local ranks from launchers are kept if every
/// rank has one. `problem` is set when two ranks of a machine have the same local rank.
[[nodiscard]] inline std::vector<member> members_of(const std::vector<arrival>& arrivals, std::string& problem) {
    std::vector<member> members;
    std::vector<std::pair<std::string, std::string>> machines;
    const bool said = std::all_of(arrivals.begin(), arrivals.end(), [](const arrival& a) { return a.local_rank >= 0; });
    for (std::size_t r = 0; r != arrivals.size(); ++r) {
        const arrival& a = arrivals[r];
        const std::pair machine{a.host, a.boot};
        const auto at = std::find(machines.begin(), machines.end(), machine);
        member m{a.host, a.process, 0, 0, static_cast<int>(at - machines.begin())};
        if (at == machines.end()) { machines.push_back(machine); }
        for (std::size_t before = 0; before != r; ++before) {
            if (members[before].node != m.node) { continue; }
            ++m.local_rank;
            if (said && arrivals[before].local_rank == a.local_rank) {
                problem = "ranks " + std::to_string(before) + " and " + std::to_string(r) + " are both local rank " +
                          std::to_string(a.local_rank) + " of host " + a.host;
            }
        }
        members.push_back(std::move(m));
    }
    for (std::size_t r = 0; r != members.size(); ++r) {
        member& m = members[r];
        m.local_size = static_cast<int>(
            std::count_if(members.begin(), members.end(), [&](const member& o) { return o.node == m.node; }));
    }
    for (std::size_t r = 0; said && r != members.size(); ++r) { members[r].local_rank = arrivals[r].local_rank; }
    return members;
}

} // namespace detail

/// Collective, once per store: the ranks of a run meet and learn of each other.
///
/// Throws launch_error on every rank present, within the longest timeout among them, when ranks are missing (they are
/// named), when two processes have the same rank, when two ranks were told different world sizes or the same local rank
/// on one machine, or when a rank is lost meanwhile.
[[nodiscard]] inline rank_table rendezvous(tcp_store& store, const rank_identity& who,
                                           deadline::duration timeout = std::chrono::seconds{60}) {
    detail::assembly all{store, who, "rendezvous", timeout};
    const auto [host, boot] = this_machine();
    const detail::arrival mine{who.world_size, host, boot, ::getpid(), who.local_rank};
    all.bring(detail::to_bytes(mine));

    const auto compare = [&](int rank, const detail::arrival& theirs, int world) {
        if (theirs.world_size == world) { return; }
        all.object("rank " + std::to_string(rank) + " (host " + theirs.host + ") was told that there are " +
                   std::to_string(theirs.world_size) + " ranks, rank 0 that there are " + std::to_string(world));
    };
    compare(who.rank, mine, detail::read_arrival(all.hear(0)).world_size);
    if (who.rank == 0) {
        std::vector<detail::arrival> arrivals;
        for (int r = 0; r != who.world_size; ++r) {
            arrivals.push_back(detail::read_arrival(all.hear(r)));
            compare(r, arrivals.back(), who.world_size);
        }
        std::string problem;
        const rank_table table{detail::members_of(arrivals, problem), detail::random_bits()};
        if (!problem.empty()) { all.object(problem); }
        all.decide(detail::to_bytes(table));
    }
    return detail::read_table(all.verdict());
}

} // namespace pulse::launch
