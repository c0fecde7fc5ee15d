#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pulse/schedule/bound/order_statistic_heads.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse::detail {

/// A makespan that no schedule beats, microseconds: bytes x least lifetime of a device's holds / its limit + the least
/// times before the first and after the last; 0 without a limit. `head`, `tail` as in `schedule_bound`.
[[nodiscard]] constexpr double hold_area_bound(const schedule_problem& problem, const indexed_problem& index,
                                               const std::vector<double>& path, const std::vector<double>& head,
                                               const std::vector<double>& tail, int device) {
    const auto n = static_cast<std::size_t>(index.ops());
    const auto m = static_cast<std::size_t>(index.microbatches);
    double first = std::numeric_limits<double>::infinity();
    double last = first;
    double area = 0;
    for (const auto& h : problem.holds) {
        if (h.device != device || h.bytes == 0) { continue; }
        const auto begin = static_cast<std::size_t>(index.op_of(h.begin));
        double life = 0;
        double rest = std::numeric_limits<double>::infinity();
        for (const auto p : {h.end, h.also_end}) {
            const auto end = static_cast<std::size_t>(index.op_of(p));
            const bool follows = path[begin * n + end] >= 0;
            const double way = follows ? index.duration[begin] + path[begin * n + end] : 0.0;
            if (follows || begin == end) { life = std::max(life, way + index.duration[end]); }
            rest = std::min(rest, tail[end * m + m - 1]);
        }
        area += static_cast<double>(h.bytes) * life;
        first = std::min(first, head[begin * m]);
        last = std::min(last, rest);
    }
    const auto limit = static_cast<double>(problem.memory_limit_bytes[static_cast<std::size_t>(device)]);
    return area > 0 && limit > 0 ? first + static_cast<double>(m) * area / limit + last : 0.0;
}

/// The same problem, without its memory limits when none can be exceeded because on every device all holds of all
/// microbatches fit together. It has the same schedules, and a search need not check memory. An ill-formed problem is
/// returned unchanged.
[[nodiscard]] constexpr schedule_problem without_idle_limits(schedule_problem problem) {
    std::vector<std::int64_t> room = problem.memory_limit_bytes;
    if (problem.microbatches < 1 || static_cast<int>(room.size()) != problem.devices) { return problem; }
    for (const auto& h : problem.holds) {
        if (h.device < 0 || h.device >= problem.devices || h.bytes < 0) { return problem; }
        auto& left = room[static_cast<std::size_t>(h.device)];
        if (h.bytes > left / problem.microbatches) { return problem; }
        left -= h.bytes * problem.microbatches;
    }
    if (std::all_of(room.begin(), room.end(), [](std::int64_t left) { return left >= 0; })) {
        problem.memory_limit_bytes.clear();
    }
    return problem;
}

/// A time, and the most work that a device can have begun before it.
struct begun_work {
    double before_us{};
    double work_us{};
};

/// Most work that a device can have begun before each time at which its heads allow another start, ascending.
///
/// Maximises the sum of duration x n(o), where the count n(o) of begun operations is at most the number of heads before
/// the time, and the holds that have begun and cannot have been released fit into the limit. Every hold's bytes grow
/// linearly past the releases that heads allow, so filling by work per byte is optimal for the continuous knapsack.
/// `turned`: `head` belongs to `mirrored(index)`, where a hold begins with its ends.
[[nodiscard]] constexpr std::vector<begun_work> most_begun_work(const schedule_problem& problem,
                                                                const indexed_problem& index,
                                                                const std::vector<double>& head, int device,
                                                                bool turned) {
    struct piece {
        double duration{};
        double count{};
        double bytes{};
    };
    struct step {
        std::size_t released{};
        double bytes{};
    };
    const auto d = static_cast<std::size_t>(device);
    const auto m = static_cast<std::size_t>(index.microbatches);
    std::vector<double> times{};
    for (const int o : index.on_device[d]) {
        const auto from = head.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(o) * m);
        times.insert(times.end(), from, from + static_cast<std::ptrdiff_t>(m));
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());

    std::vector<begun_work> out{};
    std::vector<std::size_t> begun(static_cast<std::size_t>(index.ops()), 0);
    std::vector<piece> pieces{};
    std::vector<step> steps{};
    for (const double time : times) {
        for (const int o : index.on_device[d]) {
            const auto op = static_cast<std::size_t>(o);
            while (begun[op] != m && head[op * m + begun[op]] < time) { ++begun[op]; }
        }
        double work = 0;
        pieces.clear();
        for (const int o : index.on_device[d]) {
            const auto op = static_cast<std::size_t>(o);
            if (index.duration[op] == 0) { continue; }
            steps.clear();
            for (const auto& h : problem.holds) {
                if (index.op_of(turned ? h.end : h.begin) != o) { continue; }
                const auto one = static_cast<std::size_t>(index.op_of(turned ? h.begin : h.end));
                const auto two = static_cast<std::size_t>(index.op_of(turned ? h.begin : h.also_end));
                steps.push_back({std::min(begun[one], begun[two]), static_cast<double>(h.bytes)});
            }
            std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.released < b.released; });
            std::size_t from = 0;
            double bytes = 0;
            for (const auto& s : steps) {
                const std::size_t to = std::min(s.released, begun[op]);
                if (to > from) { pieces.push_back({index.duration[op], static_cast<double>(to - from), bytes}); }
                from = std::max(from, to);
                bytes += s.bytes;
            }
            if (begun[op] > from) {
                pieces.push_back({index.duration[op], static_cast<double>(begun[op] - from), bytes});
            }
        }
        // Most work per byte first; operations that take no bytes come before all others.
        std::sort(pieces.begin(), pieces.end(),
                  [](const auto& a, const auto& b) { return a.duration * b.bytes > b.duration * a.bytes; });
        auto room = static_cast<double>(problem.memory_limit_bytes[d]);
        for (const auto& p : pieces) {
            const double count = p.bytes > 0 ? std::min(p.count, room / p.bytes) : p.count;
            work += count * p.duration;
            room -= count * p.bytes;
        }
        out.push_back({time, work});
    }
    return out;
}

/// Load plus forced idle time of one device: before a time t it has begun at most `early` work, and after the mirrored
/// time u before the end at most `late`, so the makespan is at least load + t - early(t) + u - late(u) wherever the two
/// together fall short of the load. Both lists come from `most_begun_work`.
[[nodiscard]] constexpr double forced_idle_bound(double load_us, const std::vector<begun_work>& early,
                                                 const std::vector<begun_work>& late) {
    // Sums of durations are rounded: work that makes up the load must not seem to leave any between the two times.
    const double part = load_us * (1 - 1e-9);
    double most = 0;
    double idle = 0;
    std::size_t next = 0;
    for (std::size_t i = early.size(); i-- > 0;) {
        // The later the first time, the more work precedes it, and the fewer second times qualify.
        for (; next != late.size() && early[i].work_us + late[next].work_us < part; ++next) {
            idle = std::max(idle, late[next].before_us - late[next].work_us);
        }
        if (early[i].work_us < part) { most = std::max(most, load_us + early[i].before_us - early[i].work_us + idle); }
    }
    return most;
}

} // namespace pulse::detail
