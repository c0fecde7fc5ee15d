#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/schedule/indexed_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/timed_orders.hpp>

namespace pulse {

/// 1F1B (PipeDream-Flush; Narayanan et al., 2021): stage s runs S-1-s forwards to warm up, then alternates one forward
/// and one backward, then runs the remaining backwards. Holds at most S-s microbatches.
///
/// Defined for one stage per device, whichever device that is. Throws input_error for folded and interleaved
/// placements, where a device has several stages and the published order does not say which runs first. Split, W
/// follows its B at once. Ignores memory limits.
[[nodiscard]] constexpr schedule one_f_one_b(const schedule_problem& problem) {
    const detail::indexed_problem index = detail::index_problem(problem);
    const int stages = static_cast<int>(problem.stages.size());
    const int count = index.microbatches;
    detail::device_orders orders(index.on_device.size());
    std::vector<int> stages_on(orders.size(), 0);
    for (int s = 0; s != stages; ++s) {
        const auto d = static_cast<std::size_t>(problem.stages[static_cast<std::size_t>(s)].device);
        if (++stages_on[d] > 1) {
            throw input_error("one_f_one_b: needs one stage per device (the sequential placement), but device " +
                              std::to_string(d) + " has more");
        }
        const int ahead = std::min(stages - 1 - s, count);
        for (int k = 0; k != ahead; ++k) { orders[d].push_back({pass::forward, s, k}); }
        for (int k = 0; k != count; ++k) {
            if (k + ahead < count) { orders[d].push_back({pass::forward, s, k + ahead}); }
            orders[d].push_back({pass::backward_input, s, k});
            if (problem.split_backward) { orders[d].push_back({pass::backward_weight, s, k}); }
        }
    }
    return detail::timed_from_orders(problem, orders);
}

} // namespace pulse
