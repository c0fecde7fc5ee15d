#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/placed.hpp>
#include <pulse/schedule/construct/known_orders.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// The placement of a problem that `method` is an order for; none when there is none.
[[nodiscard]] constexpr std::optional<placement> placement_for(const schedule_problem& problem,
                                                               schedule_method method) {
    const int chunks = problem.devices > 0 ? static_cast<int>(problem.stages.size()) / problem.devices : 0;
    for (const auto kind : {placement::sequential, placement::interleaved, placement::folded}) {
        if (kind == placement::sequential ? chunks != 1 : kind == placement::folded ? chunks % 2 != 0 : false) {
            continue;
        }
        if (!is_placed(problem, kind)) { continue; }
        const int waves = kind == placement::folded ? chunks / 2 : chunks;
        if (unmet_need(method, kind, waves, problem.split_backward).empty()) { return kind; }
    }
    return std::nullopt;
}

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
        if (!placement_for(problem, method) || !go_on(runs(method) * passes)) { continue; }
        try {
            take(baseline_schedule(problem, method));
        } catch (const infeasible_error&) { // it does not fit
        } catch (const input_error&) {      // not for this number of microbatches
        }
    }
}

} // namespace pulse::detail
