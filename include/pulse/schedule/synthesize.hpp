#pragma once

#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certificate.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// Finds the best schedule that it can within the limit, and bounds how far that may be from the optimum.
///
/// Computes the lower bound first. Tries the published orders that are defined for the problem and fit (the result is
/// never worse than these, unless the limit is too short to try them) and priority rules. Raises the bound by single
/// devices (`device_bounds`), by states and, where the problem is small, by windows. Tries periodic patterns, then
/// takes turns between iterated justification, device bounds and `tighten_bound`, until the limit, a stop request, or
/// until bound and makespan meet (`phases.hpp` has the order and shares). The result is never worse than any schedule
/// of the problem in `known`. A node is a list schedule, a rebuilt schedule or a state. With a node limit alone the
/// result depends on the input only.
///
/// Throws infeasible_error, naming the device and the bytes, exactly when a device cannot hold one microbatch that runs
/// alone; input_error for an ill-formed problem, or when an option leaves out an unknown phase.
[[nodiscard]] PULSE_INLINE synthesis synthesize(const schedule_problem& problem, const synthesis_options& options = {},
                                                std::span<const schedule> known = {});

namespace detail {

/// `synthesize` with turns for `prove`.
[[nodiscard]] PULSE_INLINE synthesis synthesize_proving(const schedule_problem& problem,
                                                        const synthesis_options& options,
                                                        std::span<const schedule> known, const proof_of& prove);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/synthesize.ipp> // IWYU pragma: keep
#endif
