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

/// A candidate's plan, with its step predicted by the simulator.
struct evaluated_candidate {
    plan planned{};
    /// Per device, the limit that the holds of its order had to keep to; empty if the order was found without a limit.
    std::vector<std::int64_t> room_bytes{};
    /// Where frozen components run; without components: nowhere.
    frozen_placement frozen{};
};

/// No order that was tried fits; `bytes` is the need of the nearest one on the device that exceeds its limit most.
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

/// Simulates an ordered plan of a prepared candidate, with its frozen tasks if any, and fills in its prediction; memory
/// is that of an exact layout. `limits` and `tight` as in lower_within.
///
/// With several devices the simulator runs the whole step, including contention between the messages of pipeline and
/// replicas. One device has no messages in its pipeline, and reduces its gradients in buckets before its last pass
/// ends.
PULSE_CONSTEXPR void predict_plan(plan& planned, const cost_table& costs, const prepared_candidate& prepared,
                                  const memory_limits& limits, bool tight);

/// Simulates one order of a prepared candidate within what its frozen components leave; adds their bytes.
[[nodiscard]] PULSE_CONSTEXPR evaluated_candidate simulate_candidate(const cost_table& costs, const tune_candidate& c,
                                                                     const prepared_candidate& prepared, schedule order,
                                                                     bool tight);

} // namespace detail

/// Orders a prepared candidate's passes and simulates the step: contention of the pipeline's messages, reduction over
/// the replicas, optimizer. The prediction covers the whole step and the samples of all replicas; its bytes are those
/// of one replica.
///
/// Memory limits apply to the exact layout, which has fewer spare sends if they bind. The scheduler first runs without
/// a limit. If its order needs too much, a method that adapts gets what the limit leaves, and then less by what is
/// still exceeded (alignment, transfers in flight, scratch). Throws memory_error if no such order fits.
///
/// For selective recomputation without flags it chooses the stages: none if the order then has all the room that it
/// wants; otherwise the fastest of none, all, and the sets that orders with many and with few microbatches in flight
/// make necessary (choose_recomputed_stages). The plan holds the choice.
[[nodiscard]] PULSE_CONSTEXPR evaluated_candidate evaluate_candidate(const cost_table& costs, const tune_candidate& c,
                                                                     const prepared_candidate& prepared,
                                                                     const list_options& list);

/// The plan of one fully specified candidate: its cut, its order and its simulated step on the cluster. The tuner makes
/// each of its rows in the same way; this function needs no search space and no clock, and also runs at compile time.
///
/// The microbatch size is that of the costs. Throws infeasible_error if the model cannot be cut so or the memory limit
/// cannot be met, and input_error for an invalid candidate, such as a method that is not defined for its placement.
[[nodiscard]] PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, tune_candidate c, const cluster& machine,
                                                     const candidate_options& options = candidate_options{});

/// On one node with `line` between every two devices; by default bytes move in no time.
[[nodiscard]] PULSE_CONSTEXPR planned plan_candidate(const cost_table& costs, const tune_candidate& c,
                                                     const link& line = link{},
                                                     const candidate_options& options = candidate_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_plan.ipp> // IWYU pragma: keep
#endif
