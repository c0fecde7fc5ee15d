#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>

namespace pulse {

/// A candidate with everything that is known before its passes are ordered.
struct prepared_candidate {
    partition cut{};
    candidate_step step{};
    memory_limits limits{};
    /// Bytes of each device that passes cannot use: parameters, slots for gradients of other replicas, and workspace.
    std::vector<std::int64_t> fixed_bytes{};
    /// The part of `fixed_bytes` for frozen components, which no layout of passes counts; empty: none.
    std::vector<std::int64_t> frozen_bytes{};
    std::int64_t gradient_bytes{}; ///< bytes that one replica sends for the reduction
};

/// Describes the step of a candidate with a given cut.
[[nodiscard]] PULSE_CONSTEXPR prepared_candidate prepare_candidate(const cost_table& costs, const cluster& machine,
                                                                   partition cut, const tune_candidate& c,
                                                                   const candidate_options& options,
                                                                   const memory_limits& limits);

namespace detail {

/// The plan of a cut before its passes are ordered, with the bytes that a step sends between devices predicted.
[[nodiscard]] PULSE_CONSTEXPR plan unordered_plan(const cost_table& costs, partition cut, const tune_candidate& c,
                                                  const candidate_step& step);

/// A prepared candidate with the recomputation of `c`.
[[nodiscard]] PULSE_CONSTEXPR prepared_candidate recomputing(const cost_table& costs, const tune_candidate& c,
                                                             prepared_candidate prepared);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/prepared_candidate.ipp> // IWYU pragma: keep
#endif
