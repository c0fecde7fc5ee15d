#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// What a local search reads of a problem, in flat arrays. An instance is numbered op * microbatches + microbatch.
struct sequence_graph {
    /// An operation that another one waits for or lets start: where its instance lies from the other's, and the time
    /// from start to start.
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
    /// Edges into and out of operation o are [first_before[o], first_before[o + 1]) of `before`, and so on.
    std::vector<edge> before{};
    std::vector<edge> after{};
    std::vector<int> first_before{};
    std::vector<int> first_after{};
    /// [a * ops + b]: a path leads from a to b, or a is b: then a of a microbatch runs before b of a later one.
    std::vector<char> leads_to{};
    /// Per operation: bytes that its start takes; [a * ops + b]: bytes freed when both a and b have ended; limits.
    std::vector<std::int64_t> begins{};
    std::vector<std::int64_t> frees{};
    std::vector<std::int64_t> shared{};
    /// Per operation: those that it frees bytes together with.
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
    out.leads_to.resize(n * n, 0);
    for (const int to : index.alone) {
        const auto b = static_cast<std::size_t>(to);
        out.leads_to[b * n + b] = 1;
        for (const auto& e : index.before[b]) {
            for (std::size_t a = 0; a != n; ++a) {
                if (out.leads_to[a * n + static_cast<std::size_t>(e.op)] != 0) { out.leads_to[a * n + b] = 1; }
            }
        }
    }
    out.begins.resize(n, 0);
    out.frees.resize(n, 0);
    out.shared.resize(n * n, 0);
    out.partners.resize(n);
    out.limit = problem.memory_limit_bytes;
    for (const auto& h : problem.holds) {
        const auto end = static_cast<std::size_t>(index.op_of(h.end));
        const auto also = static_cast<std::size_t>(index.op_of(h.also_end));
        out.begins[static_cast<std::size_t>(index.op_of(h.begin))] += h.bytes;
        if (end == also) {
            out.frees[end] += h.bytes;
        } else {
            if (out.shared[end * n + also] == 0 && h.bytes != 0) {
                out.partners[end].push_back(static_cast<int>(also));
                out.partners[also].push_back(static_cast<int>(end));
            }
            out.shared[end * n + also] += h.bytes;
            out.shared[also * n + end] += h.bytes;
        }
    }
    return out;
}

} // namespace pulse::detail
