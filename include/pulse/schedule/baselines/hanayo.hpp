#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/construct/list_engine.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

namespace detail {

/// Keys of a greedy wave: W right after its B, any B before any F; among B and among F the oldest microbatch first or,
/// with `finish_backward` and `finish_waves` respectively, the stage nearest to the end of that direction.
[[nodiscard]] constexpr std::vector<double> wave_keys(const indexed_problem& index, bool finish_backward,
                                                      bool finish_waves) {
    const auto m = static_cast<std::size_t>(index.microbatches);
    const int stages = index.ops() / index.passes;
    const double all = static_cast<double>(index.microbatches) * stages;
    std::vector<double> keys(static_cast<std::size_t>(index.ops()) * m, 0.0);
    for (int op = 0; op != index.ops(); ++op) {
        const stage_pass p = index.pass_of(op);
        const bool forward = p.op == pass::forward;
        const int left = forward ? stages - 1 - p.stage : p.stage;
        for (std::size_t k = 0; k != m; ++k) {
            const auto mb = static_cast<double>(k);
            const bool by_stage = forward ? finish_waves : finish_backward;
            const double own = by_stage ? left * static_cast<double>(m) + mb : mb * stages + left;
            const double rank = forward ? 2 * all : p.op == pass::backward_input ? all : 0.0;
            keys[static_cast<std::size_t>(op) * m + k] = rank + own;
        }
    }
    return keys;
}

} // namespace detail

/// Hanayo (Liu et al., 2023): W waves of a folded placement, in the order of its 1F1B: whenever a device is free, it
/// runs a ready backward, else a forward.
///
/// The paper gives an order for P microbatches only. For more, this takes the best of several that its rule allows: P
/// to 2P or all microbatches in flight, ties between stages broken by microbatch or by stage. Split, W follows its B at
/// once. Under memory limits, the best that fits. Throws infeasible_error when none does, input_error unless the
/// placement is folded.
[[nodiscard]] constexpr schedule hanayo(const schedule_problem& problem) {
    detail::require_needs(problem, schedule_method::hanayo);
    const detail::indexed_problem index = detail::index_problem(problem);
    detail::memory_profile free = detail::profile_memory(problem, index);
    free.limit.clear();
    const std::vector<double> tail(static_cast<std::size_t>(index.ops() * index.microbatches), 0.0);
    schedule best{};
    schedule least{}; // in case none fits
    for (int cap = problem.devices; cap <= 2 * problem.devices + 1; ++cap) {
        const int in_flight = cap > 2 * problem.devices ? 0 : cap;
        if (in_flight > problem.microbatches) { continue; }
        for (int ties = 0; ties != 4; ++ties) {
            const auto keys = detail::wave_keys(index, (ties & 1) != 0, (ties & 2) != 0);
            detail::list_limits limits{};
            limits.in_flight = in_flight;
            const auto run = detail::run_list(index, free, keys, tail, limits);
            schedule timed = detail::to_schedule(index, run.order, run.start);
            if (least.devices.empty()) { least = timed; }
            if (!fits_memory(problem, timed)) { continue; }
            if (best.devices.empty() || timed.makespan_us() < best.makespan_us()) { best = std::move(timed); }
        }
    }
    if (best.devices.empty()) { detail::require_fits_memory(problem, least, "hanayo"); }
    return best;
}

} // namespace pulse
