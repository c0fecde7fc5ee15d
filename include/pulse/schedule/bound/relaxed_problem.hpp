#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// Some devices of a problem; passes of the others are relaxed to the least time between those that remain. A makespan
/// that no schedule of the relaxation beats is a lower bound of the problem too.
struct relaxed_problem {
    struct operation {
        /// Position among the kept devices.
        std::size_t device{};
        double duration{};
        std::int64_t begins{};
        std::vector<memory_profile::release> ends{};
        /// Indices of the links that end here.
        std::vector<std::size_t> into{};
        /// Its operation number in the problem.
        int number{};
    };
    struct link {
        std::size_t from{};
        std::size_t to{};
        double lag_us{};
    };

    std::size_t microbatches{};
    /// Seen from the end: links reversed, microbatches counted from the last; `begins` bytes are freed at the end.
    bool turned{};
    /// In the order of a microbatch that runs alone.
    std::vector<operation> ops{};
    std::vector<link> links{};
    /// Per kept device; the largest number where memory is unlimited.
    std::vector<std::int64_t> limit{};
    /// [operation * microbatches + microbatch], microseconds, as in `schedule_bound`.
    std::vector<double> head{};
    std::vector<double> tail{};
    /// Per kept device, ascending: when more work than `work_us` is left, at least `before_us` of idle time follows.
    std::vector<std::vector<begun_work>> rest{};
};

/// Builds the relaxations of one problem.
class problem_relaxer {
public:
    /// `bound` comes from `bound_schedule(problem)`. Throws input_error for an ill-formed problem.
    problem_relaxer(const schedule_problem& problem, const schedule_bound& bound) :
        index_{index_problem(problem)}, memory_{profile_memory(problem, index_)}, path_{least_paths(index_)} {
        head_ = {bound.head, index_.mirrored(bound.tail)};
        tail_ = {bound.tail, index_.mirrored(bound.head)};
        rest_.resize(2, std::vector<std::vector<begun_work>>(static_cast<std::size_t>(index_.devices)));
        const auto back = mirrored(index_);
        for (int d = 0; memory_.limited() && d != index_.devices; ++d) {
            for (const bool turned : {false, true}) {
                // What comes last in a problem comes first in the turned one.
                auto& rest = rest_[turned ? 1 : 0][static_cast<std::size_t>(d)];
                rest = most_begun_work(problem, turned ? index_ : back, turned ? bound.head : head_[1], d, !turned);
                double idle = 0;
                for (auto& r : rest) { r.before_us = idle = std::max(idle, r.before_us - r.work_us); }
            }
        }
    }

    [[nodiscard]] const indexed_problem& index() const noexcept { return index_; }

    /// The relaxation to `devices`, which must be ascending.
    [[nodiscard]] relaxed_problem relax(const std::vector<int>& devices, bool turned) const {
        const auto n = static_cast<std::size_t>(index_.ops());
        const auto m = static_cast<std::size_t>(index_.microbatches);
        const std::size_t side = turned ? 1 : 0;
        relaxed_problem out{};
        out.microbatches = m;
        out.turned = turned;
        std::vector<int> order = index_.alone;
        if (turned) { std::reverse(order.begin(), order.end()); }
        std::vector<int> place(n, -1);
        std::vector<std::size_t> kept{};
        for (const int o : order) {
            const auto op = static_cast<std::size_t>(o);
            const auto at = std::find(devices.begin(), devices.end(), index_.device[op]);
            if (at == devices.end()) { continue; }
            place[op] = static_cast<int>(kept.size());
            kept.push_back(op);
            out.ops.push_back(
                {static_cast<std::size_t>(at - devices.begin()), index_.duration[op], memory_.begins[op], {}, {}, o});
            const auto from = static_cast<std::ptrdiff_t>(op * m);
            const auto to = from + static_cast<std::ptrdiff_t>(m);
            out.head.insert(out.head.end(), head_[side].begin() + from, head_[side].begin() + to);
            out.tail.insert(out.tail.end(), tail_[side].begin() + from, tail_[side].begin() + to);
        }
        for (const int d : devices) {
            const auto at = static_cast<std::size_t>(d);
            out.limit.push_back(memory_.limited() ? memory_.limit[at] : std::numeric_limits<std::int64_t>::max());
            out.rest.push_back(rest_[side][at]);
        }
        const auto way = [&](std::size_t a, std::size_t b) {
            return turned ? path_[kept[b] * n + kept[a]] : path_[kept[a] * n + kept[b]];
        };
        for (std::size_t i = 0; i != kept.size(); ++i) {
            for (const auto& r : memory_.ends[kept[i]]) {
                out.ops[i].ends.push_back({r.bytes, r.with < 0 ? -1 : place[static_cast<std::size_t>(r.with)]});
            }
            for (std::size_t j = 0; j != i; ++j) {
                const double lag = way(j, i);
                bool implied = lag < 0;
                for (std::size_t b = j + 1; b < i && !implied; ++b) {
                    const double first = way(j, b);
                    const double second = way(b, i);
                    implied = first >= 0 && second >= 0 && first + out.ops[b].duration + second >= lag;
                }
                if (implied) { continue; }
                out.ops[i].into.push_back(out.links.size());
                out.links.push_back({j, i, lag});
            }
        }
        return out;
    }

private:
    indexed_problem index_;
    memory_profile memory_;
    std::vector<double> path_;
    /// [0] forward, [1] turned.
    std::vector<std::vector<double>> head_{};
    std::vector<std::vector<double>> tail_{};
    std::vector<std::vector<std::vector<begun_work>>> rest_{};
};

} // namespace pulse::detail
