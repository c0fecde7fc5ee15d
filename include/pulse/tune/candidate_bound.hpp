#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

/// What a step of a candidate is made of, besides its order of passes.
struct candidate_step {
    /// The passes, recomputation included in their durations; memory unlimited.
    schedule_problem problem{};
    /// The same without recomputation: what the critical path is sure to take, as a recomputation may run while its
    /// device would wait.
    schedule_problem plain{};
    /// Links between the pipeline's devices, what they and the replicas share, the optimizer's time.
    simulation_options world{};
    int replicas{1};
    bool gradient_release{}; ///< as plan::gradient_release
    std::vector<gradient_bucket> buckets{};
    std::vector<std::int64_t> parameter_bytes{}; ///< of each device, one copy
};

/// A step time that no order of the candidate's passes can beat, microseconds; `known_us` is any bound of its passes
/// that is known already.
///
/// The maximum of: one microbatch alone; per device, its load between the earliest start of its first pass and what
/// must follow its last, then the reduction of some stage, its optimizer and the exchange of new weights where state is
/// sharded, or all its reductions after the first that can begin, as its replicas exchange one after the other; per
/// directed pair of devices and per shared link, all that it carries. What the simulator is told to do takes at least
/// that.
[[nodiscard]] PULSE_CONSTEXPR double step_bound_us(const candidate_step& step, double known_us = 0);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_bound.ipp> // IWYU pragma: keep
#endif
