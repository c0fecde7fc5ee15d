#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/link.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse {

/// How a partition is to be run: what `make_problem` needs besides costs and cuts.
struct problem_options {
    int microbatches{1};
    bool split_backward{true};
    skip_routing routing{skip_routing::direct};
    stage_recomputation recompute{};
    /// Between every two devices, unless `links` is given.
    pulse::link link{};
    /// Row-major P x P, [from * P + to]; empty means `link` everywhere.
    std::vector<pulse::link> links{};
    /// For what one step keeps per microbatch (the holds below); parameters, their gradients, optimizer state and
    /// workspace do not depend on the order and are subtracted by the caller. Empty: unlimited; one value: for every
    /// device; else one per device.
    std::vector<std::int64_t> memory_limit_bytes{};
    /// Relative speed of each device; empty means that all run at the speed of the cost table.
    std::vector<double> device_speed{};
    /// How many microbatches, the last ones, have a preview: self-conditioning.
    int previews{};
};

/// The scheduling problem of a cut model. Microseconds and bytes, for one microbatch.
///
/// Time of a stage: the sums of its layers' F, B, W over its device's speed; unsplit, B is B + W. Under
/// recomputation::skips a stage whose skip tensors a later stage on its device reads runs its forward once more right
/// before the first such stage's forward, whose time grows by it; under recomputation::stages every stage does right
/// before its B, whose time grows by it, and under recomputation::selective each of its stages.
///
/// Lag of a boundary: latency + bytes / bandwidth when the device changes, else 0; bytes are the last layer's output,
/// the residual that is open behind it, the conditioning and the relayed skips, forward and backward. A direct skip
/// between devices adds F(from) -> F(to) and B(to) -> B(from).
///
/// The preview of a microbatch is a chain of forwards like its own, whose end the first forward waits for: the last
/// layer's output goes from the last stage to the first one.
///
/// What is held where and how long: `make_holds`, `add_preview_holds`. Throws input_error when table, cut and options
/// do not fit together.
[[nodiscard]] PULSE_CONSTEXPR schedule_problem make_problem(const cost_table& costs, const partition& cut,
                                                            const problem_options& options = problem_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/make_problem.ipp> // IWYU pragma: keep
#endif
