#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/step_end.hpp>

namespace pulse {

/// A candidate's step apart from its order of passes.
struct candidate_step {
    /// The passes, recomputation included in their durations; memory unlimited.
    schedule_problem problem{};
    /// The same without recomputation: what the critical path takes at least, since a recomputation may run while its
    /// device would wait.
    schedule_problem plain{};
    /// Links between the pipeline's devices, links that they share with replicas, and the optimizer's time.
    simulation_options world{};
    int replicas{1};
    bool gradient_release{}; ///< as plan::gradient_release
    std::vector<gradient_bucket> buckets{};
    std::vector<std::int64_t> parameter_bytes{}; ///< of each device, one copy
};

/// A lower bound on the step time, us, of every order of the candidate's passes; `known_us` is any bound on the passes
/// that is already known.
///
/// The maximum of three kinds of bounds. One microbatch alone. Per device: its load between the earliest start of its
/// first pass and what must follow its last, then the reduction of some stage, its optimizer and, if state is sharded,
/// the exchange of new weights; or all its reductions after the earliest possible start of the first, since they run
/// one at a time. Per directed pair of devices and per shared link: all traffic that it carries. No simulated step is
/// shorter.
[[nodiscard]] PULSE_CONSTEXPR double step_bound_us(const candidate_step& step, double known_us = 0);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_bound.ipp> // IWYU pragma: keep
#endif
