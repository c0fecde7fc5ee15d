#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// The data from which the windows of a problem are computed; made once, shared by every window_state.
struct window_problem {
    /// A memory_hold with operation numbers.
    struct hold {
        int begin{};
        int end{};
        int also_end{};
        std::int64_t bytes{};
    };

    indexed_problem index{};
    /// Position of every operation among those of its device; per device, where its orders begin in `window_state`.
    std::vector<std::size_t> place{};
    std::vector<std::size_t> first_order{};
    std::size_t orders{};
    /// Per device; empty where memory is unlimited.
    std::vector<std::vector<hold>> holds{};
    std::vector<std::int64_t> limit{};

    /// Index of instance `k` of operation `op` in every array over instances.
    [[nodiscard]] constexpr std::size_t at(int op, int k) const noexcept {
        return static_cast<std::size_t>(op) * static_cast<std::size_t>(index.microbatches) +
               static_cast<std::size_t>(k);
    }
    [[nodiscard]] constexpr double duration(int op) const { return index.duration[static_cast<std::size_t>(op)]; }
    [[nodiscard]] constexpr const std::vector<int>& neighbours(int op) const {
        return index.on_device[static_cast<std::size_t>(index.device[static_cast<std::size_t>(op)])];
    }
    /// Index into `window_state::ahead` for how many instances of `a` run before instance `l` of `b`.
    [[nodiscard]] constexpr std::size_t order_at(int a, int b, int l) const {
        const auto device = static_cast<std::size_t>(index.device[static_cast<std::size_t>(a)]);
        const std::size_t count = index.on_device[device].size();
        const std::size_t pair = place[static_cast<std::size_t>(a)] * count + place[static_cast<std::size_t>(b)];
        return first_order[device] + pair * static_cast<std::size_t>(index.microbatches) + static_cast<std::size_t>(l);
    }
};

/// Builds the window_problem of `problem`. Throws input_error for an ill-formed problem.
[[nodiscard]] constexpr window_problem window_problem_of(const schedule_problem& problem) {
    window_problem out{};
    out.index = index_problem(problem);
    out.place.resize(out.index.device.size(), 0);
    for (const auto& ops : out.index.on_device) {
        for (std::size_t i = 0; i != ops.size(); ++i) { out.place[static_cast<std::size_t>(ops[i])] = i; }
        out.first_order.push_back(out.orders);
        out.orders += ops.size() * ops.size() * static_cast<std::size_t>(problem.microbatches);
    }
    out.limit = problem.memory_limit_bytes;
    out.holds.resize(out.limit.size());
    for (const auto& h : problem.holds) {
        if (out.limit.empty() || h.bytes == 0) { continue; }
        out.holds[static_cast<std::size_t>(h.device)].push_back(
            {out.index.op_of(h.begin), out.index.op_of(h.end), out.index.op_of(h.also_end), h.bytes});
    }
    return out;
}

/// What all schedules with a makespan of at most `cutoff_us` have in common: when each instance may run, and which of
/// two instances of a device runs first where that is settled.
///
/// Instances of one operation run in order, so the instances of `a` that surely run before instance l of `b` are the
/// first ones of `a`: one number, which grows with l, says how many.
struct window_state {
    double cutoff_us{};
    /// Earliest start and latest end of every instance, microseconds.
    std::vector<double> start{};
    std::vector<double> due{};
    /// [order_at(a, b, l)]: how many instances of `a` surely run before instance l of `b`.
    std::vector<int> ahead{};

    [[nodiscard]] constexpr int surely_before(const window_problem& facts, int a, int b, int l) const {
        return ahead[facts.order_at(a, b, l)];
    }
    /// The most instances of `a` that may run before instance l of `b`; `a` and `b` differ.
    [[nodiscard]] constexpr int perhaps_before(const window_problem& facts, int a, int b, int l) const {
        const int* const begin = ahead.data() + facts.order_at(b, a, 0);
        return static_cast<int>(std::upper_bound(begin, begin + facts.index.microbatches, l) - begin);
    }
    /// Whether instance k of `a` and instance l of `b`, another operation of the same device, may run in either order.
    [[nodiscard]] constexpr bool open(const window_problem& facts, int a, int k, int b, int l) const {
        return surely_before(facts, a, b, l) <= k && surely_before(facts, b, a, k) <= l;
    }
};

/// The state that follows from `bound` and the dependencies alone under a cutoff.
[[nodiscard]] constexpr window_state window_state_of(const window_problem& facts, const schedule_bound& bound,
                                                     double cutoff_us) {
    window_state out{cutoff_us, bound.head, bound.tail, {}};
    for (auto& d : out.due) { d = cutoff_us - d; }
    out.ahead.resize(facts.orders, 0);
    const auto path = least_paths(facts.index);
    const int m = facts.index.microbatches;
    const auto n = static_cast<std::size_t>(facts.index.ops());
    for (const auto& ops : facts.index.on_device) {
        for (const int a : ops) {
            for (const int b : ops) {
                const bool leads = path[static_cast<std::size_t>(a) * n + static_cast<std::size_t>(b)] >= 0;
                for (int l = 0; l != m; ++l) { out.ahead[facts.order_at(a, b, l)] = a == b ? l : leads ? l + 1 : 0; }
            }
        }
    }
    return out;
}

} // namespace pulse::detail
