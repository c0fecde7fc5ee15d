#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pulse::detail {

/// A job of one machine: it may start at `head`, takes `duration`, and `tail` must pass after it.
struct machine_job {
    double head{};
    double duration{};
    double tail{};
};

/// Jackson's preemptive schedule: the least maximum of end + tail when jobs may be interrupted; at all times the ready
/// job with the longest tail runs (Carlier, 1982). O(n log n).
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

} // namespace pulse::detail
