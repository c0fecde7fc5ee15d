#pragma once

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse {

/// Chooses degrees, microbatch size, placement, split, recomputation and rank layout together: the plan with the
/// shortest simulated step over the whole cluster, with the outcome of every other candidate.
///
/// `costs_of(b)` is the cost table for microbatches of b samples: analytic_costs of a graph, or scaled_costs of a
/// profile. Every candidate gets a certified bound on its step before any schedule is made (step_bound_us, then
/// lower_bound_us); candidates are evaluated from the lowest bound upwards, and those whose bound is above the
/// `ranked`-th best step are dropped. The choice is the same as if all were evaluated, with ties going to the first
/// enumerated. Deterministic.
///
/// Throws input_error for invalid options, infeasible_error if no candidate can run, saying what binds, and error if it
/// was stopped before it had any plan; stopped later, it returns the best so far.
[[nodiscard]] PULSE_INLINE tuning tune(const cost_source& costs_of, const cluster& machine,
                                       const tune_options& options);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/tuner.ipp> // IWYU pragma: keep
#endif
