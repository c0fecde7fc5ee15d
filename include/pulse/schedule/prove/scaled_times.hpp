#pragma once

#include <cmath>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse::detail {

/// The power of two that brings `time_us` into [2048, 4096); 1 for 0.
///
/// Solvers of integer programs have absolute tolerances. Multiplying times by a power of two keeps all their digits, so
/// every problem can be handed over at one scale, and results convert back exactly.
[[nodiscard]] inline double solver_scale(double time_us) {
    if (!(time_us > 0)) { return 1; }
    int exponent = 0;
    (void)std::frexp(time_us, &exponent);
    return std::ldexp(1.0, 12 - exponent);
}

/// `problem` with all times multiplied by `factor`.
[[nodiscard]] constexpr schedule_problem scaled_times(schedule_problem problem, double factor) {
    for (auto& s : problem.stages) {
        s.forward_us *= factor;
        s.backward_input_us *= factor;
        s.backward_weight_us *= factor;
    }
    for (auto& d : problem.dependencies) { d.lag_us *= factor; }
    return problem;
}

/// `bound` with all times multiplied by `factor`.
[[nodiscard]] constexpr schedule_bound scaled_times(schedule_bound bound, double factor) {
    bound.makespan_us *= factor;
    for (auto& h : bound.head) { h *= factor; }
    for (auto& t : bound.tail) { t *= factor; }
    return bound;
}

/// `timed` with all times multiplied by `factor`.
[[nodiscard]] constexpr schedule scaled_times(schedule timed, double factor) {
    for (auto& passes : timed.devices) {
        for (auto& p : passes) {
            p.start_us *= factor;
            p.end_us *= factor;
        }
    }
    return timed;
}

} // namespace pulse::detail
