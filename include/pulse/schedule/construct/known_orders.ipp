#pragma once

#include <cstdint>
#include <functional>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/construct/known_orders.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

PULSE_INLINE void for_each_known_order(const schedule_problem& problem, const std::function<bool(std::int64_t)>& go_on,
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
        if (!unmet_need(problem, method).empty() || !go_on(runs(method) * passes)) { continue; }
        try {
            take(baseline_schedule(problem, method));
        } catch (const infeasible_error&) { // it does not fit
        } catch (const input_error&) {      // not for this number of microbatches
        }
    }
}

} // namespace pulse::detail
