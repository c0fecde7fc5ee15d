#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse {

/// How to run a partition: what `make_problem` needs besides costs and cuts.
struct problem_options {
    int microbatches{1};
    bool split_backward{true};
    skip_routing routing{skip_routing::direct};
    stage_recomputation recompute{};
    /// Link between any two devices, unless `links` is given.
    pulse::link link{};
    /// Row-major P x P, [from * P + to]; empty means `link` everywhere.
    std::vector<pulse::link> links{};
    /// Limit on what a step keeps per microbatch (the holds below). Parameters, their gradients, optimizer state and
    /// workspace do not depend on the order; the caller subtracts them. Empty: unlimited; one value: for every device;
    /// else one value per device.
    std::vector<std::int64_t> memory_limit_bytes{};
    /// Relative speed of each device; empty means that all run at the cost table's speed.
    std::vector<double> device_speed{};
    /// The last `previews` microbatches have a preview (self-conditioning).
    int previews{};
};

/// Builds the scheduling problem of a partitioned model. Times in microseconds, bytes for one microbatch.
///
/// Time of a stage: the sums of its layers' F, B, W over its device's speed; unsplit, B is B + W. Under
/// recomputation::skips, a stage whose skip tensors a later stage on its device reads reruns its forward right before
/// the first such stage's forward, which takes that much longer. Under recomputation::stages every stage, and under
/// selective each selected one, reruns its forward right before its B, which takes that much longer.
///
/// Lag of a boundary: latency + bytes / bandwidth when the device changes, else 0; bytes are the last layer's output,
/// the residual left open at the cut, the conditioning and the relayed skips, forward and backward. A direct skip
/// between devices adds F(from) -> F(to) and B(to) -> B(from).
///
/// The preview of a microbatch is a chain of forwards like its own. The first forward waits for its end, because the
/// last layer's output is sent from the last stage to the first.
///
/// `make_holds` and `add_preview_holds` define what is held where and how long. Throws input_error when table, cut and
/// options do not fit together.
[[nodiscard]] PULSE_CONSTEXPR schedule_problem make_problem(const cost_table& costs, const partition& cut,
                                                            const problem_options& options = problem_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/make_problem.ipp> // IWYU pragma: keep
#endif
