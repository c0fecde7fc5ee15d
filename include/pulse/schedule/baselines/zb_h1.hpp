#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/zero_bubble_heuristic.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/memory_guard.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>
#include <pulse/schedule/validate.hpp>

namespace pulse {

/// ZB-H1 (Qi et al., 2023): zero-bubble scheduling in 1F1B's memory, the best of its heuristic's eight combinations of
/// flags on the problem's own times, lags and bytes.
///
/// 1F1B's memory is the most that 1F1B holds on any device; every device may hold that much. Under the problem's own
/// limits the heuristic warms up less and takes W earlier. Throws infeasible_error when a device cannot hold one
/// microbatch that runs alone, input_error unless the placement is sequential and the backward split.
[[nodiscard]] constexpr schedule zb_h1(const schedule_problem& problem) {
    require_sequential(problem, "zb_h1");
    require_split(problem, "zb_h1");
    const indexed_problem index = index_problem(problem);
    require_room(profile_memory(problem, index));
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
        schedule timed = timed_from_orders(problem, orders);
        if (best.devices.empty() || timed.makespan_us() < best.makespan_us()) { best = std::move(timed); }
    }
    if (best.devices.empty()) { throw infeasible_error("zb_h1: its heuristic finds no order within the memory limit"); }
    return best;
}

} // namespace pulse
