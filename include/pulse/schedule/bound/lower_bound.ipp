#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/bound/memory_bounds.hpp>
#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse {

namespace detail {

/// A job of one machine: it may start at `head`, takes `duration`, and `tail` must pass after it.
struct machine_job {
    double head{};
    double duration{};
    double tail{};
};

/// Jackson's preemptive schedule: the least maximum of end + tail when jobs may be interrupted; the ready job with the
/// longest tail always runs (Carlier, 1982). O(n log n).
[[nodiscard]] constexpr double jackson_preemptive(std::vector<machine_job> jobs) {
    std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.head < b.head; });
    const auto later = [](const machine_job& a, const machine_job& b) { return a.tail < b.tail; };
    std::vector<machine_job> open{};
    double now = 0;
    double value = 0;
    std::size_t next = 0;
    while (next != jobs.size() || !open.empty()) {
        if (open.empty()) { now = std::max(now, jobs[next].head); }
        for (; next != jobs.size() && jobs[next].head <= now; ++next) {
            open.push_back(jobs[next]);
            std::push_heap(open.begin(), open.end(), later);
        }
        std::pop_heap(open.begin(), open.end(), later);
        machine_job job = open.back();
        open.pop_back();
        const double end = now + job.duration;
        if (next != jobs.size() && jobs[next].head < end) {
            job.duration = end - jobs[next].head;
            now = jobs[next].head;
            open.push_back(job);
            std::push_heap(open.begin(), open.end(), later);
        } else {
            now = end;
            value = std::max(value, end + job.tail);
        }
    }
    return value;
}

} // namespace detail

PULSE_CONSTEXPR schedule_bound bound_schedule(const schedule_problem& problem) {
    const detail::indexed_problem index = detail::index_problem(problem, detail::taken_chains::several);
    const auto m = static_cast<std::size_t>(index.microbatches);
    auto links = detail::memory_links(problem, index);
    schedule_bound out{0, detail::order_statistic_heads(index, links), {}};
    const detail::indexed_problem back = mirrored(index);
    for (auto& link : links) { link = {link.after, link.before, link.distance}; }
    const auto mirrored_heads = detail::order_statistic_heads(back, links);
    out.tail = index.mirrored(mirrored_heads);
    for (std::size_t d = 0; d != index.on_device.size(); ++d) {
        std::vector<detail::machine_job> jobs{};
        for (const int o : index.on_device[d]) {
            const auto op = static_cast<std::size_t>(o);
            for (auto k = static_cast<std::size_t>(index.first[op]); k != m; ++k) {
                const std::size_t at = op * m + k;
                jobs.push_back({out.head[at], index.duration[op], out.tail[at]});
                out.makespan_us = std::max(out.makespan_us, out.head[at] + index.duration[op] + out.tail[at]);
            }
        }
        out.makespan_us = std::max(out.makespan_us, detail::jackson_preemptive(std::move(jobs)));
    }
    if (problem.previews > 0) { return out; } // the bounds below count the same passes for every microbatch
    const auto path = detail::least_paths(index);
    for (int d = 0; d != static_cast<int>(problem.memory_limit_bytes.size()); ++d) {
        const double area = detail::hold_area_bound(problem, index, path, out.head, out.tail, d);
        const auto early = detail::most_begun_work(problem, index, out.head, d, false);
        const auto late = detail::most_begun_work(problem, back, mirrored_heads, d, true);
        const double idle = detail::forced_idle_bound(static_cast<double>(m) * index.load_us(d), early, late);
        out.makespan_us = std::max({out.makespan_us, area, idle});
    }
    return out;
}

PULSE_CONSTEXPR double lower_bound_us(const schedule_problem& problem) { return bound_schedule(problem).makespan_us; }

} // namespace pulse
