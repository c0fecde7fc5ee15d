#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// `after`, executed for the k-th time, starts no earlier than the end of `before`, executed for the (k - distance)-th
/// time: no more microbatches fit between the two. All passes run the microbatches in one order, as validate requires.
struct memory_link {
    int before{};
    int after{};
    int distance{};
};

/// The memory links of a problem: for passes x, e of one device, the bytes that every microbatch holds from the start
/// of x to the end of e fit c times into the limit, so e of microbatch k - c ends before x of microbatch k starts.
[[nodiscard]] constexpr std::vector<memory_link> memory_links(const schedule_problem& problem,
                                                              const indexed_problem& index) {
    std::vector<memory_link> links{};
    const int stages = static_cast<int>(problem.stages.size());
    if (problem.previews > 0) { return links; } // links assume that every microbatch has the passes
    for (std::size_t d = 0; d != problem.memory_limit_bytes.size(); ++d) {
        const std::int64_t limit = problem.memory_limit_bytes[d];
        for (const int x : index.on_device[d]) {
            const stage_pass from = index.pass_of(x);
            if (from.op == pass::backward_weight) { continue; }
            for (const int e : index.on_device[d]) {
                const stage_pass to = index.pass_of(e);
                // A pass on the way to x surely begins no later than x; one on the way from e ends no earlier than e.
                const auto on_the_way = [&](stage_pass a, stage_pass b) {
                    if (a == b) { return true; }
                    if (a.op == pass::backward_weight) { return false; }
                    const int rank_b = alone_rank(b, stages) - (b.op == pass::backward_weight ? 1 : 0);
                    return alone_rank(a, stages) <= rank_b;
                };
                if (!on_the_way(from, to)) { continue; }
                std::int64_t bytes = 0;
                for (const auto& h : problem.holds) {
                    if (h.device != static_cast<int>(d) || !on_the_way(h.begin, from)) { continue; }
                    if (on_the_way(to, h.end) || on_the_way(to, h.also_end)) { bytes += h.bytes; }
                }
                if (bytes == 0 || bytes > limit || limit / bytes >= problem.microbatches) { continue; }
                links.push_back({e, x, static_cast<int>(limit / bytes)});
            }
        }
    }
    return links;
}

/// Least time from the end of one operation to the start of another of the same microbatch; -1 where there is no path.
/// Row-major, [from * ops + to].
[[nodiscard]] constexpr std::vector<double> least_paths(const indexed_problem& index) {
    const auto n = static_cast<std::size_t>(index.ops());
    std::vector<double> path(n * n, -1.0);
    for (const int to : index.alone) {
        const auto b = static_cast<std::size_t>(to);
        for (const auto& link : index.before[b]) {
            const auto p = static_cast<std::size_t>(link.op);
            path[p * n + b] = std::max(path[p * n + b], link.lag_us);
            for (std::size_t a = 0; a != n; ++a) {
                if (path[a * n + p] < 0) { continue; }
                path[a * n + b] = std::max(path[a * n + b], path[a * n + p] + index.duration[p] + link.lag_us);
            }
        }
    }
    return path;
}

/// Earliest start of the k-th execution of every operation in any schedule, [op * microbatches + k].
///
/// The maximum of: the execution before it; its predecessors; for every device D and every set A of its ancestors there
/// that start late, the least start of A + (k + 1) x work of A + the least path from A (k x its own duration instead
/// when it runs on D); the memory links. With `mirrored(index)` and turned links, the result is the tails. No A
/// contains previews, which not every microbatch has; the head of a preview that does not exist is meaningless.
[[nodiscard]] constexpr std::vector<double> order_statistic_heads(const indexed_problem& index,
                                                                  const std::vector<memory_link>& links) {
    struct line {
        double base{};
        double slope{};
    };
    const auto n = static_cast<std::size_t>(index.ops());
    const auto m = static_cast<std::size_t>(index.microbatches);
    const auto path = least_paths(index);
    std::vector<std::vector<memory_link>> into(n);
    for (const auto& link : links) { into[static_cast<std::size_t>(link.after)].push_back(link); }

    std::vector<double> head(n * m, 0.0);
    std::vector<std::vector<line>> lines(n);
    for (const int o : index.alone) {
        const auto op = static_cast<std::size_t>(o);
        for (const auto& link : index.before[op]) {
            const auto p = static_cast<std::size_t>(link.op);
            if (!index.runs_on(p, 0)) { continue; }
            head[op * m] = std::max(head[op * m], head[p * m] + index.duration[p] + link.lag_us);
        }
        for (std::size_t d = 0; d != index.on_device.size(); ++d) {
            const bool own = index.device[op] == static_cast<int>(d);
            std::vector<std::size_t> ancestors{};
            for (const int a : index.on_device[d]) {
                if (!index.is_preview(a) && path[static_cast<std::size_t>(a) * n + op] >= 0) {
                    ancestors.push_back(static_cast<std::size_t>(a));
                }
            }
            std::sort(ancestors.begin(), ancestors.end(), [&](std::size_t a, std::size_t b) {
                return head[a * m] != head[b * m] ? head[a * m] > head[b * m] : a < b;
            });
            double work = 0;
            double rest = std::numeric_limits<double>::infinity();
            for (const std::size_t a : ancestors) {
                work += index.duration[a];
                rest = std::min(rest, path[a * n + op]);
                const double least = head[a * m] + work + (own ? 0.0 : rest);
                head[op * m] = std::max(head[op * m], least);
                lines[op].push_back({least, work + (own ? index.duration[op] : 0.0)});
            }
        }
    }
    for (std::size_t k = 1; k < m; ++k) {
        for (const int o : index.alone) {
            const auto op = static_cast<std::size_t>(o);
            const int now = static_cast<int>(k);
            if (!index.runs_on(op, now)) { continue; }
            double at = index.runs_on(op, now - 1) ? head[op * m + k - 1] + index.duration[op] : 0.0;
            for (const auto& link : index.before[op]) {
                const auto p = static_cast<std::size_t>(link.op);
                if (!index.runs_on(p, now)) { continue; }
                at = std::max(at, head[p * m + k] + index.duration[p] + link.lag_us);
            }
            for (const auto& l : lines[op]) { at = std::max(at, l.base + static_cast<double>(k) * l.slope); }
            for (const auto& link : into[op]) {
                const auto c = static_cast<std::size_t>(link.distance);
                const auto e = static_cast<std::size_t>(link.before);
                if (k >= c) { at = std::max(at, head[e * m + k - c] + index.duration[e]); }
            }
            head[op * m + k] = at;
        }
    }
    return head;
}

} // namespace pulse::detail
