#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/frozen_placement.hpp>

namespace pulse {

/// A step time that no order of a candidate's passes and frozen tasks can beat, on whatever hosts; `known_us` is any
/// bound of its passes.
[[nodiscard]] PULSE_INLINE double frozen_step_bound_us(const cost_table& costs, const tune_candidate& c,
                                                       const candidate_step& step, double known_us = 0);

/// The hosts that a candidate may choose, the best first: each component on every device that has room for it, or on
/// one, or, where not every device has room for it whole, its layers on several. Of those whose steps can be equally
/// short the first takes the fewest bytes; empty: there is no room.
[[nodiscard]] PULSE_INLINE std::vector<frozen_placement> frozen_placements(const cost_table& costs,
                                                                           const tune_candidate& c,
                                                                           const prepared_candidate& prepared,
                                                                           frozen_mode mode);

/// Reserves, of what the passes of a candidate may use, what its frozen components take.
[[nodiscard]] PULSE_INLINE prepared_candidate beside_frozen(prepared_candidate prepared, const frozen_placement& where);

/// Adds frozen work to what an ordered candidate expects of its step: what tasks that divide at will take, no more than
/// those that fill_frozen finds.
PULSE_INLINE void expect_frozen(evaluated_candidate& made, const prepared_candidate& prepared,
                                const frozen_placement& where);

namespace detail {

/// No device has room for some component, beside the parameters.
[[nodiscard]] PULSE_INLINE memory_error no_room_for_frozen(const cost_table& costs, const prepared_candidate& prepared);

} // namespace detail

/// Orders a candidate's passes with `evaluate(prepared)` on what its frozen components leave, and says what to expect of
/// its step: on the first of its placements, and where that leaves the passes too little, on the one that takes least.
/// Throws memory_error when neither fits.
template <class Evaluate>
[[nodiscard]] evaluated_candidate evaluate_beside_frozen(const cost_table& costs, const tune_candidate& c,
                                                         const prepared_candidate& prepared, frozen_mode mode,
                                                         const Evaluate& evaluate) {
    const std::vector<frozen_placement> all = frozen_placements(costs, c, prepared, mode);
    if (all.empty()) { throw detail::no_room_for_frozen(costs, prepared); }
    const auto on = [&](const frozen_placement& where) {
        const prepared_candidate beside = beside_frozen(prepared, where);
        evaluated_candidate made = evaluate(beside);
        expect_frozen(made, beside, where);
        return made;
    };
    const auto& least = *std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
        return *std::max_element(a.kept_bytes.begin(), a.kept_bytes.end()) <
               *std::max_element(b.kept_bytes.begin(), b.kept_bytes.end());
    });
    if (&least == &all.front()) { return on(least); }
    try {
        return on(all.front());
    } catch (const memory_error&) { return on(least); }
}

/// A candidate whose frozen tasks have their times, and whose passes those that they have beside them, from one whose
/// passes are ordered; `placements` as in fill_options. Its step is simulated, and its bytes are those of an exact
/// layout. Throws infeasible_error when memory is too small for the tasks.
[[nodiscard]] PULSE_INLINE evaluated_candidate fill_frozen(const cost_table& costs, const evaluated_candidate& alone,
                                                           const prepared_candidate& prepared, frozen_mode mode,
                                                           double passes_bound_us, std::int64_t placements);

/// Orders passes and frozen tasks of a filled candidate together by fill_exactly, where they are few, and keeps that if
/// its step is shorter and fits in memory. Says in one line what it proved of all orders on the same hosts, or why not.
[[nodiscard]] PULSE_INLINE std::string order_exactly(const cost_table& costs, evaluated_candidate& found,
                                                     const prepared_candidate& prepared, double passes_bound_us,
                                                     const search_limit& limit);

namespace detail {

/// Every component encoded whole before the first pass, each call on the host that has least to do; passes begin when
/// the last one ends. `room`: bytes of each device; empty: unlimited.
[[nodiscard]] PULSE_INLINE filled_schedule encode_first(const schedule& passes, const frozen_work& work,
                                                        const std::vector<std::int64_t>& room);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/frozen_step.ipp> // IWYU pragma: keep
#endif
