#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/construct/list_rules.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// How long the list scheduler searches. It always stops at the lower bound.
struct list_options {
    /// Which rules are tried.
    list_effort effort{list_effort::rules};
    /// Forward-backward improvement of the best runs: how many runs, and rounds without gain before one is given up.
    int improved_runs{3};
    int patience{2};
    /// Runs with random changes to the best rule's priorities; more of them close the gap where memory binds.
    int explored_runs{200};
};

/// A schedule with its makespan and lower bound.
struct list_result {
    schedule order{};
    double makespan_us{};
    double lower_bound_us{};
    /// Engine runs that the search took.
    int runs{};

    [[nodiscard]] constexpr double gap() const noexcept { return gap_of(makespan_us, lower_bound_us); }
};

/// Finds the best schedule that list scheduling can, with its bound: priority rules, forward-backward improvement of
/// the best of them, then a walk over the priorities. Never worse than GPipe and 1F1B where those fit into memory.
/// Deterministic; never stalls.
///
/// Throws infeasible_error, naming the device and the bytes, exactly when a device cannot hold one microbatch that runs
/// alone (each W right after its B); input_error for an ill-formed problem.
[[nodiscard]] PULSE_CONSTEXPR list_result list_search(const schedule_problem& problem,
                                                      const list_options& options = list_options{});

/// The schedule of `list_search`.
[[nodiscard]] PULSE_CONSTEXPR schedule list_schedule(const schedule_problem& problem,
                                                     const list_options& options = list_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/construct/list_scheduler.ipp> // IWYU pragma: keep
#endif
