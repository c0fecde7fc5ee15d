#pragma once

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/prove/window_propagation.hpp>
#include <pulse/schedule/prove/window_state.hpp>

namespace pulse::detail {

/// Bisects between `low_us` and `high_us`, down to `step_us`, for the longest cutoff that propagation of windows alone
/// refutes (a destructive lower bound: Klein and Scholl, 1999). Calls `refuted(cutoff)` for each cutoff that no
/// schedule meets; ends early when `go_on` returns false. `facts` and `bound` belong to the problem of `propagator`.
///
/// One narrowing takes milliseconds for some hundred instances, a tenth of a second for thousands; when nothing just
/// above `low_us` is refuted, the search ends after the first.
template <class GoOn, class Refuted>
constexpr void refute_by_windows(const window_problem& facts, const schedule_bound& bound,
                                 window_propagator& propagator, double low_us, double high_us, double step_us,
                                 const GoOn& go_on, const Refuted& refuted) {
    const auto refute = [&](double cutoff) {
        auto state = window_state_of(facts, bound, cutoff);
        if (propagator.narrow(state)) { return false; }
        refuted(cutoff);
        return true;
    };
    const double least = low_us + step_us / 2;
    if (least >= high_us) {
        (void)refute(high_us);
        return;
    }
    if (!refute(least) || !go_on() || refute(high_us)) { return; }
    for (double low = least, high = high_us; high - low > step_us && go_on();) {
        const double middle = low + (high - low) / 2;
        (refute(middle) ? low : high) = middle;
    }
}

} // namespace pulse::detail
