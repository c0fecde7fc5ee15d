#pragma once

#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/rank_grid.hpp>
#include <pulse/schedule/method.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/frozen_mode.hpp>

namespace pulse {

/// How far a tuning is.
struct tune_progress {
    std::size_t done{};
    std::size_t total{};
    double best_step_us{}; ///< 0 before the first plan
    std::string_view stage{};
};

/// What the tuner may choose from; a list of one fixes the choice, an empty list means every sensible value.
struct tune_options : candidate_options {
    /// Many candidates are scheduled: each quickly.
    tune_options() { list = {.effort = list_effort::one, .improved_runs = 1, .patience = 1, .explored_runs = 0}; }

    /// Samples of one optimizer step over all devices: microbatch size x microbatches x data degree.
    int global_batch{};
    /// Devices that are used; 0 is all of the cluster.
    int devices{};
    /// Empty: every divisor of the devices.
    std::vector<int> pipeline_degrees{};
    std::vector<int> data_degrees{};
    /// Empty: powers of two.
    std::vector<int> microbatch_sizes{};
    std::vector<int> microbatches{};
    std::vector<placement> placements{placement::folded, placement::sequential, placement::interleaved};
    /// Of the folded placement.
    std::vector<int> waves{1, 2};
    /// Stages on a device of the interleaved placement.
    std::vector<int> chunks{2, 4};
    std::vector<skip_routing> routings{skip_routing::direct, skip_routing::relayed};
    std::vector<bool> split_backwards{true, false};
    std::vector<recomputation> recomputations{recomputation::none, recomputation::skips, recomputation::stages,
                                              recomputation::selective};
    std::vector<rank_layout> layouts{rank_layout::pipeline_inside, rank_layout::replicas_inside};
    /// Where a method does not fit a placement the pair is left out.
    std::vector<schedule_method> methods{schedule_method::list};
    std::vector<double> slacks{0.0};
    /// How the frozen components of the costs run, where they have any.
    frozen_mode frozen{frozen_mode::none};
    /// Of every folded candidate.
    fold_cut fold{fold_cut::collocated};

    /// Whether replicas share the optimizer's state.
    std::vector<bool> sharded_optimizers{false};

    /// Looks longer for the orders of the best few: gets the scheduling problem, gives an order of it and what it
    /// proved. Asked again, at most twice each, with memory limits in the problem where the order needs more than a
    /// device has.
    std::function<synthesis(const schedule_problem&)> refine{};
    int refined{3};

    /// How many of the best plans are sure to be evaluated; the rest may lose by their bounds. Plans whose stages to
    /// recompute are chosen are looked at last, and only where they may be the best one.
    std::size_t ranked{10};
    /// False evaluates every candidate: slow, for comparison.
    bool prune{true};
    std::function<void(const tune_progress&)> progress{};
    std::stop_token stop{};
};

/// What the options leave out of the space.
struct left_out_candidates {
    int indivisible{}; ///< degrees and sizes that do not multiply to the global batch
    int unmet{};       ///< candidates that are none of the method or the split that was asked
    std::string why{}; ///< of the first of those
};

/// Every candidate, in an order that depends on the options alone. Degrees, sizes and counts that do not multiply to
/// the global batch are left out and counted, and so are candidates for which a method is not defined.
///
/// Choices without effect are made once: one replica shares no state; one device has no routing and no layout, and no
/// split (nothing waits for it) where it need not have one; a folded placement takes the first routing, as its skips
/// stay on their devices. One device runs its microbatches one after the other: it is a candidate of the list scheduler
/// and of GPipe alone, and of no space that asks for a split. `places` are the nodes, or the devices where these are
/// unlike: in one, no layout differs from another. Throws input_error for options that make no sense.
[[nodiscard]] PULSE_INLINE std::vector<tune_candidate> enumerate_candidates(const tune_options& options, int devices,
                                                                            int places, left_out_candidates& left_out);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/search_space.ipp> // IWYU pragma: keep
#endif
