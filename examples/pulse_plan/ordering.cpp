#include "ordering.hpp"

#include <algorithm>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesize.hpp>
#if PULSE_PLAN_GLPK
#include <pulse/schedule/glpk.hpp>
#include <pulse/schedule/synthesize_with.hpp>
#endif

namespace pulse_plan {

namespace {

/// The placement that a schedule is made for; none when it fits more than one.
std::optional<pulse::placement> placement_of(method asked) {
    switch (asked) {
    case method::one_f_one_b: return pulse::placement::sequential;
    case method::interleaved: return pulse::placement::interleaved;
    case method::zb_v: return pulse::placement::folded;
    case method::ilp:
    case method::list:
    case method::gpipe: break;
    }
    return std::nullopt;
}

} // namespace

void set_ordering(const arguments& a, pulse::tune_options& options, progress& shown, const std::stop_token& stop) {
    const std::optional<pulse::placement> only = a.schedule ? placement_of(*a.schedule) : std::nullopt;
    if (only) {
        if (a.placement && *a.placement != *only) {
            throw pulse::input_error("--schedule: it is made for the " + std::string{pulse::name_of(*only)} +
                                     " placement, and --placement says " + std::string{pulse::name_of(*a.placement)});
        }
        options.placements = {*only};
    }
#if !PULSE_PLAN_GLPK
    if (a.schedule == method::ilp) { throw pulse::input_error("--schedule ilp: this program was built without GLPK"); }
#endif
    const bool improves = !a.schedule || *a.schedule == method::ilp;
    if (!improves || a.time_limit_s <= 0) { return; }
    const double seconds = a.time_limit_s / std::max(1, options.refined);
    options.refine = [seconds, stop, &shown](const pulse::schedule_problem& problem) {
        pulse::synthesis_options asked;
        asked.limit = {.seconds = seconds, .stop = stop};
        asked.progress = [&shown](const pulse::synthesis_progress& state) { shown.solving(state); };
#if PULSE_PLAN_GLPK
        pulse::glpk_solver solver;
        return pulse::synthesize(problem, asked, solver).best;
#else
        return pulse::synthesize(problem, asked).best;
#endif
    };
}

} // namespace pulse_plan
