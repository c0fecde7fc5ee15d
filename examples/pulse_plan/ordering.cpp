#include "ordering.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesize.hpp>
#if PULSE_PLAN_GLPK
#include <pulse/schedule/prove/glpk.hpp>
#include <pulse/schedule/synthesize_with.hpp>
#endif

namespace pulse_plan {

namespace {

/// The published order that was asked for; none for the searches.
std::optional<pulse::schedule_method> published(const arguments& a) {
    using pulse::schedule_method;
    if (!a.schedule) { return std::nullopt; }
    switch (*a.schedule) {
    case method::gpipe: return schedule_method::gpipe;
    case method::one_f_one_b: return schedule_method::one_f_one_b;
    case method::interleaved: return schedule_method::interleaved;
    case method::zb_v: return schedule_method::zb_v;
    case method::ilp:
    case method::list: break;
    }
    return std::nullopt;
}

/// The placement that an order is made for; none when it fits more than one.
std::optional<pulse::placement> placement_of(pulse::schedule_method order) {
    switch (order) {
    case pulse::schedule_method::one_f_one_b: return pulse::placement::sequential;
    case pulse::schedule_method::interleaved: return pulse::placement::interleaved;
    case pulse::schedule_method::zb_v: return pulse::placement::folded;
    default: return std::nullopt;
    }
}

/// Takes a published order into the options; refuses it beside arguments that it has no use for.
void set_published(const arguments& a, pulse::schedule_method order, pulse::tune_options& options) {
    const std::string name = "--schedule " + std::string{pulse::name_of(order)};
    options.methods = {order};
    const std::optional<pulse::placement> only = placement_of(order);
    if (only) {
        const std::string_view need =
            pulse::unmet_need(order, a.placement.value_or(*only), a.waves.value_or(1), a.split_backward.value_or(true));
        if (!need.empty()) { throw pulse::input_error(name + ": it " + std::string{need}); }
        if (a.pipeline == 1) { throw pulse::input_error(name + ": it needs more than the one device of --pipeline 1"); }
        if (only == pulse::placement::sequential && a.waves.value_or(1) != 1) {
            throw pulse::input_error(name + ": it has one stage on each device, and --waves says more");
        }
        options.placements = {*only};
    }
}

} // namespace

void set_ordering(const arguments& a, pulse::tune_options& options, progress& shown, const std::stop_token& stop) {
    if (const auto order = published(a)) { set_published(a, *order, options); }
    if (a.schedule == method::ilp && a.time_limit_s <= 0) {
        throw pulse::input_error("--time-limit: 0 leaves --schedule ilp no time");
    }
#if !PULSE_PLAN_GLPK
    if (a.schedule == method::ilp) { throw pulse::input_error("--schedule ilp: this program was built without GLPK"); }
#endif
    const bool improves = !a.schedule || *a.schedule == method::ilp;
    if (!improves || a.time_limit_s <= 0) { return; }
    // Equal shares for the best few; a candidate that is asked again, with less memory, takes from what is left of all.
    const double share = a.time_limit_s / std::max(1, options.refined);
    options.refine = [share, left = a.time_limit_s, stop, &shown](const pulse::schedule_problem& problem) mutable {
        constexpr double least = 1e-3;
        pulse::synthesis_options asked;
        asked.limit = {.seconds = std::max(least, std::min(share, left)), .stop = stop};
        asked.progress = [&shown](const pulse::synthesis_progress& state) { shown.solving(state); };
#if PULSE_PLAN_GLPK
        pulse::glpk_solver solver;
        pulse::synthesis found = pulse::synthesize(problem, asked, solver);
#else
        pulse::synthesis found = pulse::synthesize(problem, asked);
#endif
        left -= found.seconds;
        return found;
    };
}

} // namespace pulse_plan
