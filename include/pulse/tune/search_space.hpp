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

/// Progress of a tuning.
struct tune_progress {
    std::size_t done{};
    std::size_t total{};
    double best_step_us{}; ///< 0 before the first plan
    std::string_view stage{};
};

/// What the tuner may choose from; a list of one value fixes the choice, an empty list means every sensible value.
struct tune_options : candidate_options {
    /// Many candidates are scheduled, so each is scheduled quickly.
    tune_options() { list = {.effort = list_effort::one, .improved_runs = 1, .patience = 1, .explored_runs = 0}; }

    /// Samples of one optimizer step over all devices: microbatch size x microbatches x data degree.
    int global_batch{};
    /// Number of devices to use; 0: all of the cluster.
    int devices{};
    /// Empty: every divisor of the devices.
    std::vector<int> pipeline_degrees{};
    std::vector<int> data_degrees{};
    /// Empty: powers of two.
    std::vector<int> microbatch_sizes{};
    std::vector<int> microbatches{};
    std::vector<placement> placements{placement::folded, placement::sequential, placement::interleaved};
    /// For the folded placement.
    std::vector<int> waves{1, 2};
    /// Stages per device of the interleaved placement.
    std::vector<int> chunks{2, 4};
    std::vector<skip_routing> routings{skip_routing::direct, skip_routing::relayed};
    std::vector<bool> split_backwards{true, false};
    std::vector<recomputation> recomputations{recomputation::none, recomputation::skips, recomputation::stages,
                                              recomputation::selective};
    std::vector<rank_layout> layouts{rank_layout::pipeline_inside, rank_layout::replicas_inside};
    /// A method that does not fit a placement is skipped for it.
    std::vector<schedule_method> methods{schedule_method::list};
    std::vector<double> slacks{0.0};
    /// How the frozen components of the costs run, if there are any.
    frozen_mode frozen{frozen_mode::none};
    /// For every folded candidate.
    fold_cut fold{fold_cut::collocated};

    /// Whether replicas shard the optimizer's state.
    std::vector<bool> sharded_optimizers{false};

    /// Searches longer for the orders of the best few: takes the scheduling problem, returns an order and what it
    /// proved. It is called again, at most twice for each, with memory limits in the problem if the order needs more
    /// than a device has.
    std::function<synthesis(const schedule_problem&)> refine{};
    int refined{3};

    /// Number of best plans that are certain to be evaluated; the rest may be dropped by their bounds. Candidates whose
    /// stages to recompute are chosen come last, and are evaluated only if they may be the best.
    std::size_t ranked{10};
    /// False evaluates every candidate: slow, for comparison.
    bool prune{true};
    std::function<void(const tune_progress&)> progress{};
    std::stop_token stop{};
};

/// Candidates that the options exclude.
struct left_out_candidates {
    int indivisible{}; ///< degrees and sizes that do not multiply to the global batch
    int unmet{};       ///< candidates that violate a rule of their method or the requested split
    std::string why{}; ///< reason for the first of those
};

/// Every candidate, in an order that depends on the options alone. Degrees, sizes and counts that do not multiply to
/// the global batch are left out and counted, as are candidates for which a method is not defined.
///
/// Choices without effect are made once: one replica has nothing to shard; one device has no routing, no layout and,
/// unless required, no split (nothing waits for it); a folded placement takes the first routing, since its skips stay
/// on their devices. One device runs its microbatches one after the other, so it is a candidate for the list scheduler
/// and GPipe only, and never if a split is required. `places` counts the nodes, or the devices if they are unlike: with
/// one place all layouts are the same. Throws input_error for invalid options.
[[nodiscard]] PULSE_INLINE std::vector<tune_candidate> enumerate_candidates(const tune_options& options, int devices,
                                                                            int places, left_out_candidates& left_out);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/search_space.ipp> // IWYU pragma: keep
#endif
