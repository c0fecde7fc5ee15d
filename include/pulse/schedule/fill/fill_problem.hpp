#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse::detail {

/// The passes of a schedule in their orders, as tasks between them see them; an instance is op * microbatches +
/// microbatch.
struct fill_problem {
    indexed_problem index{};
    std::vector<std::vector<int>> sequence{}; ///< [device]
    std::vector<double> earliest_us{};        ///< [instance] start, with no task anywhere
    std::vector<double> tail_us{};            ///< [instance] from its start to the end of all, at least
    double end_us{};                          ///< of all that follows the earliest starts
    /// Bytes that holds take before the i-th pass of a device, and the most during it and all that follow; empty where
    /// memory is free.
    std::vector<std::vector<std::int64_t>> held_before{};
    std::vector<std::vector<std::int64_t>> held_from{};
    std::vector<std::int64_t> takes{};     ///< [op] bytes of the holds that begin with it; empty where memory is free
    std::vector<std::int64_t> held_most{}; ///< [device] of all holds together; the same

    [[nodiscard]] constexpr int instances() const noexcept { return index.ops() * index.microbatches; }
    [[nodiscard]] constexpr std::size_t op_of(int x) const noexcept {
        return static_cast<std::size_t>(x / index.microbatches);
    }
    [[nodiscard]] constexpr std::size_t device_of(int x) const {
        return static_cast<std::size_t>(index.device[op_of(x)]);
    }
    [[nodiscard]] constexpr double duration_us(int x) const { return index.duration[op_of(x)]; }
    [[nodiscard]] constexpr int instance_of(std::size_t op, int like) const noexcept {
        return static_cast<int>(op) * index.microbatches + like % index.microbatches;
    }
};

/// The levels of the holds of each device along its sequence.
constexpr void take_levels(fill_problem& frame, const schedule_problem& problem) {
    std::vector<std::size_t> place(static_cast<std::size_t>(frame.instances()), 0);
    for (const auto& list : frame.sequence) {
        for (std::size_t i = 0; i != list.size(); ++i) { place[static_cast<std::size_t>(list[i])] = i; }
    }
    for (const auto& list : frame.sequence) {
        frame.held_before.emplace_back(list.size() + 1, 0);
        frame.held_from.emplace_back(list.size() + 1, 0);
    }
    frame.takes.resize(static_cast<std::size_t>(frame.index.ops()), 0);
    frame.held_most.resize(frame.sequence.size(), 0);
    for (const memory_hold& h : problem.holds) {
        frame.takes[static_cast<std::size_t>(frame.index.op_of(h.begin))] += h.bytes;
        auto& before = frame.held_before[static_cast<std::size_t>(h.device)];
        auto& during = frame.held_from[static_cast<std::size_t>(h.device)];
        const auto at = [&](stage_pass p, int k) {
            return place[static_cast<std::size_t>(frame.index.op_of(p) * problem.microbatches + k)];
        };
        for (int k = problem.first_microbatch(h.begin.op); k != problem.microbatches; ++k) {
            const std::size_t begin = at(h.begin, k);
            const std::size_t end = std::max(at(h.end, k), at(h.also_end, k));
            frame.held_most[static_cast<std::size_t>(h.device)] += h.bytes;
            during[begin] += h.bytes;
            during[end + 1] -= h.bytes;
            if (begin == end) { continue; }
            before[begin + 1] += h.bytes;
            before[end + 1] -= h.bytes;
        }
    }
    for (std::size_t d = 0; d != frame.sequence.size(); ++d) {
        auto& before = frame.held_before[d];
        auto& during = frame.held_from[d];
        for (std::size_t i = 1; i != before.size(); ++i) {
            before[i] += before[i - 1];
            during[i] += during[i - 1];
        }
        for (std::size_t i = during.size() - 1; i-- > 0;) { during[i] = std::max(during[i], during[i + 1]); }
    }
}

/// `after_us`: what each device does behind its last pass. Throws input_error when `passes` is not in orders that
/// `problem` can run.
[[nodiscard]] constexpr fill_problem frame_of(const schedule_problem& problem, const schedule& passes,
                                              const std::vector<double>& after_us) {
    const schedule early = retimed(problem, passes);
    fill_problem out{};
    out.index = index_problem(problem, problem.further_chains.empty() ? taken_chains::several : taken_chains::one);
    const auto n = static_cast<std::size_t>(out.instances());
    out.earliest_us.resize(n, 0.0);
    out.tail_us.resize(n, 0.0);
    std::vector<int> next(n, -1);
    std::vector<int> waits(n, 0);
    for (const auto& list : early.devices) {
        if (!list.empty()) { out.end_us = std::max(out.end_us, list.back().end_us + after_us[out.sequence.size()]); }
        out.sequence.emplace_back();
        for (const timed_pass& p : list) {
            const int x = out.index.instance_of(p);
            out.earliest_us[static_cast<std::size_t>(x)] = p.start_us;
            if (!out.sequence.back().empty()) { next[static_cast<std::size_t>(out.sequence.back().back())] = x; }
            out.sequence.back().push_back(x);
        }
    }
    // Tails, from the end: an instance is due when all that follows it has its tail.
    std::vector<int> previous(n, -1);
    std::vector<int> due{};
    for (std::size_t x = 0; x != n; ++x) {
        if (next[x] >= 0) { previous[static_cast<std::size_t>(next[x])] = static_cast<int>(x); }
        const auto after = out.index.after[out.op_of(static_cast<int>(x))].size();
        waits[x] = static_cast<int>(after) + (next[x] >= 0 ? 1 : 0);
        if (waits[x] == 0) { due.push_back(static_cast<int>(x)); }
    }
    while (!due.empty()) {
        const int x = due.back();
        const auto at = static_cast<std::size_t>(x);
        due.pop_back();
        double after = next[at] >= 0 ? out.tail_us[static_cast<std::size_t>(next[at])] : after_us[out.device_of(x)];
        for (const auto& l : out.index.after[out.op_of(x)]) {
            const int y = out.instance_of(static_cast<std::size_t>(l.op), x);
            after = std::max(after, l.lag_us + out.tail_us[static_cast<std::size_t>(y)]);
        }
        out.tail_us[at] = out.duration_us(x) + after;
        const auto done = [&](int y) {
            if (--waits[static_cast<std::size_t>(y)] == 0) { due.push_back(y); }
        };
        if (previous[at] >= 0) { done(previous[at]); }
        for (const auto& l : out.index.before[out.op_of(x)]) {
            done(out.instance_of(static_cast<std::size_t>(l.op), x));
        }
    }
    if (!problem.memory_limit_bytes.empty()) { take_levels(out, problem); }
    return out;
}

} // namespace pulse::detail
