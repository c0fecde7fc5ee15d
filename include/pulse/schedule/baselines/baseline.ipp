#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/dualpipe_v.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/hanayo.hpp>
#include <pulse/schedule/baselines/interleaved.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/baselines/zb_v.hpp>
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

PULSE_CONSTEXPR schedule baseline_schedule(const schedule_problem& problem, schedule_method method) {
    schedule timed{};
    switch (method) {
    case schedule_method::gpipe: timed = gpipe(problem); break;
    case schedule_method::one_f_one_b: timed = one_f_one_b(problem); break;
    case schedule_method::interleaved: timed = interleaved_one_f_one_b(problem); break;
    case schedule_method::zb_h1: timed = zb_h1(problem); break;
    case schedule_method::zb_v: timed = zb_v(problem); break;
    case schedule_method::dualpipe_v: timed = dualpipe_v(problem); break;
    case schedule_method::hanayo: timed = hanayo(problem); break;
    default: throw input_error("schedule method " + std::string{name_of(method)} + ": it is not a published method");
    }
    detail::require_fits_memory(problem, timed, std::string{name_of(method)}.c_str());
    return timed;
}

PULSE_INLINE void detail::for_each_known_order(const schedule_problem& problem,
                                               const std::function<bool(std::int64_t)>& go_on,
                                               const std::function<void(const schedule&)>& take) {
    const auto passes =
        static_cast<std::int64_t>(problem.stages.size()) * problem.microbatches * (problem.split_backward ? 3 : 2);
    const auto runs = [&](schedule_method method) -> std::int64_t {
        switch (method) {
        case schedule_method::hanayo: return 4 * (problem.devices + 2);
        case schedule_method::zb_v:
        case schedule_method::zb_h1: return 8;
        default: return 1;
        }
    };
    for (const auto method :
         {schedule_method::gpipe, schedule_method::one_f_one_b, schedule_method::interleaved,
          schedule_method::dualpipe_v, schedule_method::zb_h1, schedule_method::zb_v, schedule_method::hanayo}) {
        if (!detail::unmet_need(problem, method).empty() || !go_on(runs(method) * passes)) { continue; }
        try {
            take(baseline_schedule(problem, method));
        } catch (const infeasible_error&) { // it does not fit
        } catch (const input_error&) {      // not for this number of microbatches
        }
    }
}

} // namespace pulse
