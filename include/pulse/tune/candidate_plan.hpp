#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_cut.hpp>
#include <pulse/tune/frozen_placement.hpp>
#include <pulse/tune/prepared_candidate.hpp>

namespace pulse {

/// A candidate's plan, which predicts what its step takes in the simulator.
struct evaluated_candidate {
    plan planned{};
    /// What the holds of its order were let take on every device; empty where it was found without a limit.
    std::vector<std::int64_t> room_bytes{};
    /// Where it encodes; no components: nowhere.
    frozen_placement frozen{};
};

/// No order that was tried fits; `bytes` is what the nearest one takes on the device that exceeds the limit most.
struct memory_error : infeasible_error {
    std::int64_t bytes{};

    memory_error(int device, std::int64_t needed, std::int64_t limit, std::int64_t fixed) :
        infeasible_error("device " + std::to_string(device) + " needs " + std::to_string(needed) + " bytes of " +
                         std::to_string(limit) + ": parameters, their copies, room for replicas and workspace " +
                         std::to_string(fixed) + ", the order's activations, skips and gradients " +
                         std::to_string(needed - fixed)),
        bytes{needed} {}
    memory_error(std::int64_t needed, const std::string& why) : infeasible_error(why), bytes{needed} {}
};

namespace detail {

/// Simulates an ordered plan of a prepared candidate, with its frozen tasks if it has any, and fills in what it
/// predicts, with the bytes of memory of an exact layout. `limits` and `tight` as in lower_within.
///
/// Of several devices the simulator runs the whole step, with what replicas and pipeline do to each other's messages.
/// One device alone has no messages, and reduces its gradients in buckets, before its last pass ends.
PULSE_CONSTEXPR void predict_plan(plan& planned, const cost_table& costs, const prepared_candidate& prepared,
                                  const memory_limits& limits, bool tight);

/// Simulates one order of a prepared candidate on what its frozen components leave; their bytes are added.
[[nodiscard]] PULSE_CONSTEXPR evaluated_candidate simulate_candidate(const cost_table& costs, const tune_candidate& c,
                                                                     const prepared_candidate& prepared, schedule order,
                                                                     bool tight);

} // namespace detail

/// Orders a prepared candidate's passes and simulates the step: contention of the pipeline's messages, reduction over
/// the replicas, optimizer. The plan's prediction is of the whole step and all replicas' samples; its bytes are of one
/// replica.
///
/// A limit is judged by the exact layout of memory, whose spare sends are fewer where it binds. The scheduler is asked
/// without it first; where that order needs too much, a method that can adapt is given what the limit leaves, and then
/// less by what is still exceeded (alignment, transfers under way, scratch). Throws memory_error when no such order
/// fits.
///
/// Of a candidate whose recomputation is selective without flags it chooses the stages: none where that leaves the
/// order all the room that it wants; otherwise the fastest of none, all, and what orders with many microbatches in
/// flight and with few make necessary (choose_recomputed_stages). The plan has the choice.
[[nodiscard]] PULSE_CONSTEXPR evaluated_candidate evaluate_candidate(const cost_table& costs, const tune_candidate& c,
                                                                     const prepared_candidate& prepared,
                                                                     const list_options& list);

/// The plan of one candidate, every choice of which is made: where it is cut, in which order it runs, what its step
/// takes on the cluster. The tuner makes each of its rows in the same way; this one needs no space and no clock, and
/// runs in the compiler too.
///
/// The microbatch size is that of the costs. Throws infeasible_error when the model cannot be cut so or the memory
/// limit cannot be met, and input_error for a candidate that makes no sense, a method that is not defined for its
/// placement among them.
[[nodiscard]] PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, tune_candidate c, const cluster& machine,
                                                     const candidate_options& options = candidate_options{});

/// On one node, every two devices of which are joined by `line`; without one, bytes move in no time.
[[nodiscard]] PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, const tune_candidate& c,
                                                     const link& line = link{},
                                                     const candidate_options& options = candidate_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_plan.ipp> // IWYU pragma: keep
#endif
