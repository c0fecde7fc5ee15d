#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// A problem in flat arrays, for local search. An instance is numbered op * microbatches + microbatch.
struct sequence_graph {
    /// A predecessor or successor of an operation: the offset from the operation's instance to its own, and its
    /// duration plus the lag between the two.
    struct edge {
        int shift{};
        double weight_us{};
    };

    int devices{};
    int microbatches{};
    int ops{};
    std::vector<int> op{};
    std::vector<int> device{};
    std::vector<double> duration{};
    /// Edges of operation o: [first_before[o], first_before[o + 1]) of `before`, and likewise of `after`.
    std::vector<edge> before{};
    std::vector<edge> after{};
    std::vector<int> first_before{};
    std::vector<int> first_after{};
    /// Per operation: how many operations lead to it, which grows along every path; negated in a mirrored graph.
    std::vector<int> rank{};
    /// Per operation: bytes taken at its start; freed at its end; [a * ops + b]: freed when both a and b have ended.
    std::vector<std::int64_t> begins{};
    std::vector<std::int64_t> frees{};
    std::vector<std::int64_t> shared{};
    /// Per operation: the operations with which it frees bytes jointly.
    std::vector<std::vector<int>> partners{};
    std::vector<std::int64_t> limit{};

    [[nodiscard]] int instances() const noexcept { return ops * microbatches; }
    /// The number of an instance in the mirrored graph.
    [[nodiscard]] int flipped(int x) const noexcept {
        const int k = x - op[static_cast<std::size_t>(x)] * microbatches;
        return x - k + microbatches - 1 - k;
    }
};

/// Flattens a problem. Requires the index of the same problem.
[[nodiscard]] inline sequence_graph make_sequence_graph(const schedule_problem& problem, const indexed_problem& index) {
    sequence_graph out{};
    out.devices = index.devices;
    out.microbatches = index.microbatches;
    out.ops = index.ops();
    const auto n = static_cast<std::size_t>(out.ops);
    out.device = index.device;
    out.duration = index.duration;
    for (int o = 0; o != out.ops; ++o) {
        out.op.insert(out.op.end(), static_cast<std::size_t>(out.microbatches), o);
        out.first_before.push_back(static_cast<int>(out.before.size()));
        out.first_after.push_back(static_cast<int>(out.after.size()));
        const auto at = static_cast<std::size_t>(o);
        const auto edge_to = [&](const indexed_problem::link& e) {
            const double weight = index.duration[static_cast<std::size_t>(e.op)] + e.lag_us;
            return sequence_graph::edge{(e.op - o) * out.microbatches, weight};
        };
        for (const auto& e : index.before[at]) { out.before.push_back(edge_to(e)); }
        for (const auto& e : index.after[at]) { out.after.push_back(edge_to(e)); }
    }
    out.first_before.push_back(static_cast<int>(out.before.size()));
    out.first_after.push_back(static_cast<int>(out.after.size()));
    const auto path = least_paths(index);
    out.rank.resize(n, 0);
    for (std::size_t i = 0; i != path.size(); ++i) { out.rank[i % n] += path[i] >= 0 ? 1 : 0; }
    const memory_profile memory = profile_memory(problem, index);
    out.begins = memory.begins;
    out.limit = memory.limit;
    out.frees.resize(n, 0);
    out.shared.resize(n * n, 0);
    out.partners.resize(n);
    for (std::size_t o = 0; o != n; ++o) {
        for (const auto& [bytes, with] : memory.ends[o]) {
            auto& freed = with < 0 ? out.frees[o] : out.shared[o * n + static_cast<std::size_t>(with)];
            if (with >= 0 && freed == 0 && bytes != 0) { out.partners[o].push_back(with); }
            freed += bytes;
        }
    }
    return out;
}

} // namespace pulse::detail
