#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/frozen_mode.hpp>
#include <pulse/tune/frozen_placement.hpp>

namespace pulse {

/// A lower bound on the step time of every order of a candidate's passes and frozen tasks, on any hosts; `known_us` is
/// any bound on its passes.
[[nodiscard]] PULSE_INLINE double frozen_step_bound_us(const cost_table& costs, const tune_candidate& c,
                                                       const candidate_step& step, double known_us = 0);

/// The placements that a candidate may choose, best first: each component on every device that has room for it, or on
/// one, or, if not every device has room for all components whole, with its layers on several. Among placements whose
/// steps can be equally short, those with the fewest splits come first, then those with the fewest bytes; empty if
/// there is no room.
[[nodiscard]] PULSE_INLINE std::vector<frozen_placement> frozen_placements(const cost_table& costs,
                                                                           const tune_candidate& c,
                                                                           const prepared_candidate& prepared,
                                                                           frozen_mode mode);

/// Subtracts the bytes of a candidate's frozen components from what its passes may use.
[[nodiscard]] PULSE_INLINE prepared_candidate beside_frozen(prepared_candidate prepared, const frozen_placement& where);

/// Adds frozen work to the predicted step of an ordered candidate: the time that infinitely divisible tasks would take,
/// which is at most the time that fill_frozen finds.
PULSE_INLINE void expect_frozen(evaluated_candidate& made, const prepared_candidate& prepared,
                                const frozen_placement& where);

namespace detail {

/// The error for some component that fits on no device beside the parameters.
[[nodiscard]] PULSE_INLINE memory_error no_room_for_frozen(const cost_table& costs, const prepared_candidate& prepared);

} // namespace detail

/// Orders a candidate's passes with `evaluate(prepared)` within what its frozen components leave, and predicts its
/// step. It tries the first placement. If that leaves the passes less memory than they want, it also tries two others,
/// each the one whose fullest device has most room left: among placements without splits, and among all. The fastest
/// counts. Throws memory_error if none of them fits.
template <class Evaluate>
[[nodiscard]] evaluated_candidate evaluate_beside_frozen(const cost_table& costs, const tune_candidate& c,
                                                         const prepared_candidate& prepared, frozen_mode mode,
                                                         const Evaluate& evaluate) {
    const std::vector<frozen_placement> all = frozen_placements(costs, c, prepared, mode);
    if (all.empty()) { throw detail::no_room_for_frozen(costs, prepared); }
    const auto on = [&](const frozen_placement& where) {
        const prepared_candidate beside = beside_frozen(prepared, where);
        evaluated_candidate made = evaluate(beside);
        tune_candidate chosen = c;
        chosen.recompute = made.planned.recompute;
        expect_frozen(made, detail::recomputing(costs, chosen, beside), where);
        return made;
    };
    const auto less = [&](const auto& a, const auto& b) {
        const auto most = [&](const frozen_placement& p) {
            std::int64_t bytes = 0;
            for (std::size_t d = 0; d != p.kept_bytes.size(); ++d) {
                bytes = std::max(bytes, prepared.fixed_bytes[d] + p.kept_bytes[d] + p.live_bytes[d]);
            }
            return bytes;
        };
        return most(a) < most(b);
    };
    const auto whole_before = [&](const auto& a, const auto& b) {
        return a.work.split.empty() != b.work.split.empty() ? a.work.split.empty() : less(a, b);
    };
    const auto whole = std::min_element(all.begin(), all.end(), whole_before);
    const auto least = std::min_element(all.begin(), all.end(), less);
    std::optional<evaluated_candidate> best{};
    std::optional<memory_error> why{};
    for (const auto where : std::set{all.begin(), whole, least}) {
        try {
            evaluated_candidate made = on(*where);
            if (!best || made.planned.predicted.step_us < best->planned.predicted.step_us) { best = std::move(made); }
            if (best->room_bytes.empty()) { break; } // its passes have all the room that they want
        } catch (const memory_error& e) {
            if (!why || e.bytes < why->bytes) { why = e; }
        }
    }
    if (!best) { throw *why; }
    return *std::move(best);
}

/// From a candidate with ordered passes, one with times for its frozen tasks and for its passes beside them;
/// `placements` as in fill_options. The step is simulated, and its bytes are those of an exact layout. Throws
/// infeasible_error if memory is too small for the tasks.
[[nodiscard]] PULSE_INLINE evaluated_candidate fill_frozen(const cost_table& costs, const evaluated_candidate& alone,
                                                           const prepared_candidate& prepared, frozen_mode mode,
                                                           double passes_bound_us, std::int64_t placements);

namespace detail {

/// Encodes every component whole before the first pass, each call on the host that is free first; passes begin when the
/// last call ends. `room`: bytes of each device; empty: unlimited.
[[nodiscard]] PULSE_INLINE filled_schedule encode_first(const schedule& passes, const frozen_work& work,
                                                        const std::vector<std::int64_t>& room);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/frozen_step.ipp> // IWYU pragma: keep
#endif
