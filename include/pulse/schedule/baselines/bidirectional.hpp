#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// Two pipelines of the same model in opposite directions, half of the microbatches in each.
///
/// `problem` has 2P stages: 0 .. P-1 are the cut's, P .. 2P-1 their copies on the mirrored devices, and M/2
/// microbatches: microbatch k of the first P stages and microbatch k of the others are two different ones. There is no
/// chain from stage P-1 to stage P, so it is a problem for `find_violation` and `peak_holds`, which read dependencies
/// as they stand, and not for schedulers and bounds that want one chain.
struct bidirectional_problem {
    schedule_problem problem{};
    /// What the second copy costs: parameters that each device holds, both its stages, one copy of the values.
    std::vector<std::int64_t> parameter_bytes{};
    /// Microseconds that the sum of the gradients of stage s over its two devices takes: each sends half to the other
    /// and gets back half of the sum.
    std::vector<double> gradient_sum_us{};
    /// What these sums send in a step.
    std::int64_t gradient_bytes{};
};

/// The problem of two opposite pipelines over a sequential cut of an even number of devices.
///
/// `options` are those of one pipeline, M microbatches in all. Throws input_error when M or P is odd or the placement
/// is not sequential, and as `make_problem`.
[[nodiscard]] PULSE_CONSTEXPR bidirectional_problem make_bidirectional_problem(const cost_table& costs,
                                                                               const partition& cut,
                                                                               const problem_options& options);

/// End of the step: the last pass, or the last sum of gradients. A stage's sum begins when both copies have done their
/// last backward pass; the two stages that a pair of devices shares are summed one after the other.
[[nodiscard]] PULSE_CONSTEXPR double step_us(const bidirectional_problem& both, const schedule& timed);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/baselines/bidirectional.ipp> // IWYU pragma: keep
#endif
