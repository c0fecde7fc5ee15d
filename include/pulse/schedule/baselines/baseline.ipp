#pragma once

#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/schedule/baselines/baseline.hpp>
#include <pulse/schedule/baselines/dualpipe_v.hpp>
#include <pulse/schedule/baselines/gpipe.hpp>
#include <pulse/schedule/baselines/hanayo.hpp>
#include <pulse/schedule/baselines/interleaved.hpp>
#include <pulse/schedule/baselines/one_f_one_b.hpp>
#include <pulse/schedule/baselines/within_limit.hpp>
#include <pulse/schedule/baselines/zb_h1.hpp>
#include <pulse/schedule/baselines/zb_v.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

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
    default: throw input_error("schedule method " + std::string{name_of(method)} + ": it is no published order");
    }
    detail::require_fits_memory(problem, timed, std::string{name_of(method)}.c_str());
    return timed;
}

} // namespace pulse
