#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>

namespace pulse::detail {

/// What the list engine built. An instance is op * microbatches + microbatch.
struct list_run {
    /// Start of every instance, microseconds.
    std::vector<double> start{};
    /// Instances of every device in the order in which they run.
    std::vector<std::vector<int>> order{};
    double makespan_us{std::numeric_limits<double>::infinity()};
};

/// Options of a list engine run besides its priorities.
struct list_limits {
    /// A device stays idle for a more urgent operation that becomes ready within `delay` x the duration of the one
    /// chosen.
    double delay{};
    /// Most microbatches between the first forward and the last pass of stage 0; 0 means any number.
    int in_flight{};
    /// The run is given up when the makespan is sure to reach this.
    double give_up_us{std::numeric_limits<double>::infinity()};
};

/// Parallel list scheduling: whenever a device is free, it starts the operation with the smallest `key[instance]` among
/// those that are ready and that the memory guard allows; ties go to the first in `index.on_device`, which has the
/// order of a microbatch that runs alone. Microbatches of an operation run in order.
///
/// `tail[instance]` is time that must pass after an instance's end (0 is valid), used to give up early. An abandoned
/// run has an infinite makespan.
[[nodiscard]] constexpr list_run run_list(const indexed_problem& index, const memory_profile& memory,
                                          const std::vector<double>& key, const std::vector<double>& tail,
                                          const list_limits& limits) {
    constexpr double never = std::numeric_limits<double>::infinity();
    const auto n = static_cast<std::size_t>(index.ops());
    const auto m = static_cast<std::size_t>(index.microbatches);
    const auto devices = static_cast<std::size_t>(index.devices);
    memory_guard guard{memory, index};
    list_run out{std::vector<double>(n * m, 0.0), std::vector<std::vector<int>>(devices), 0};
    std::vector<int> done = index.first; // the next microbatch of every operation
    std::vector<double> ready(n, never);
    std::vector<double> free_at(devices, 0.0);
    std::vector<double> wake(devices, never);
    const auto no_preview = [&](int op) { return !index.is_preview(op); };
    const auto entry = static_cast<std::size_t>(*std::find_if(index.alone.begin(), index.alone.end(), no_preview));
    const auto exit = static_cast<std::size_t>(*std::find_if(index.alone.rbegin(), index.alone.rend(), no_preview));

    const auto refresh = [&](std::size_t op) {
        const int k = done[op];
        ready[op] = never;
        if (k == index.end[op]) { return; }
        double at = 0;
        for (const auto& link : index.before[op]) {
            const auto p = static_cast<std::size_t>(link.op);
            if (!index.runs_on(p, k)) { continue; }
            if (done[p] <= k) { return; }
            at = std::max(at, out.start[p * m + static_cast<std::size_t>(k)] + index.duration[p] + link.lag_us);
        }
        ready[op] = at;
    };
    const auto allowed = [&](std::size_t op) {
        if (limits.in_flight > 0 && op == entry && done[op] - done[exit] >= limits.in_flight) { return false; }
        return guard.may_start(static_cast<int>(op));
    };
    const auto set_alarm = [&](std::size_t d) {
        double at = never;
        for (const int o : index.on_device[d]) {
            const auto op = static_cast<std::size_t>(o);
            if (ready[op] < at && allowed(op)) { at = ready[op]; }
        }
        wake[d] = std::max(at, free_at[d]);
    };
    for (std::size_t op = 0; op != n; ++op) { refresh(op); }
    for (std::size_t d = 0; d != devices; ++d) { set_alarm(d); }

    for (std::size_t left = index.instances(); left != 0; --left) {
        const auto d = static_cast<std::size_t>(std::min_element(wake.begin(), wake.end()) - wake.begin());
        const double now = wake[d];
        std::size_t chosen = n;
        double best = never;
        const auto choose = [&](const auto& in_time) {
            for (const int o : index.on_device[d]) {
                const auto op = static_cast<std::size_t>(o);
                if (!in_time(ready[op]) || !allowed(op)) { continue; }
                const double k = key[op * m + static_cast<std::size_t>(done[op])];
                if (chosen == n || k < best) {
                    chosen = op;
                    best = k;
                }
            }
        };
        choose([&](double at) { return at <= now; });
        if (chosen != n && limits.delay > 0) {
            const double until = now + limits.delay * index.duration[chosen];
            choose([&](double at) { return at > now && at < until; });
        }
        if (chosen == n) { throw error("the list scheduler stalled"); }
        const auto at = chosen * m + static_cast<std::size_t>(done[chosen]);
        const double start = std::max(now, ready[chosen]);
        const double end = start + index.duration[chosen];
        if (end + tail[at] >= limits.give_up_us) { return {}; }
        out.start[at] = start;
        out.order[d].push_back(static_cast<int>(at));
        out.makespan_us = std::max(out.makespan_us, end);
        free_at[d] = end;
        ++done[chosen];
        guard.run(static_cast<int>(chosen));
        refresh(chosen);
        for (const auto& link : index.after[chosen]) {
            const auto next = static_cast<std::size_t>(link.op);
            const bool unknown = ready[next] == never;
            if (unknown) { refresh(next); }
            const auto there = static_cast<std::size_t>(index.device[next]);
            if (unknown && there != d && ready[next] != never) { set_alarm(there); }
        }
        set_alarm(d);
    }
    return out;
}

} // namespace pulse::detail
