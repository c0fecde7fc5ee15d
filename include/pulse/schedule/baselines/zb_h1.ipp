#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/zb_h1.hpp>
#include <pulse/schedule/baselines/zero_bubble_heuristic.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

PULSE_CONSTEXPR schedule zb_h1(const schedule_problem& problem) {
    detail::require_needs(problem, schedule_method::zb_h1);
    const detail::indexed_problem index = detail::index_problem(problem);
    detail::require_room(detail::profile_memory(problem, index));
    const auto peaks = peak_holds(problem, one_f_one_b(problem));
    std::vector<std::int64_t> limit(peaks.size(), *std::max_element(peaks.begin(), peaks.end()));
    for (std::size_t d = 0; d != problem.memory_limit_bytes.size(); ++d) {
        limit[d] = std::min(limit[d], problem.memory_limit_bytes[d]);
    }
    detail::zero_bubble_heuristic heuristic{problem, index, limit};
    schedule best{};
    for (int flags = 0; flags != 8; ++flags) {
        const auto orders = heuristic.build({(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
        if (orders.empty()) { continue; }
        schedule timed = detail::timed_from_orders(problem, orders);
        if (best.devices.empty() || timed.makespan_us() < best.makespan_us()) { best = std::move(timed); }
    }
    if (best.devices.empty()) { throw infeasible_error("zb_h1: its heuristic finds no order within the memory limit"); }
    return best;
}

} // namespace pulse
