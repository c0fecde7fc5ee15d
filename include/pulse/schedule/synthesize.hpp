#pragma once

#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certificate.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// The best schedule that can be found within the limit, and how far it may be from the optimum.
///
/// The bound first; then published orders that are defined for the problem and fit (the result is never worse, unless
/// the limit is too short to look at them), and priority rules; then the bound is raised by single devices
/// (`device_bounds`), by states and, where the problem is small, by windows; then periodic patterns, iterated
/// justification, more bounds of devices and `tighten_bound` by turns, until the limit, a stop request, or until bound
/// and makespan meet (`phases.hpp` has the order and shares). Whichever of `known` is a schedule of the problem is
/// taken into account: the result is never worse. One node is a list schedule, a rebuilt schedule or a state. With a
/// limit of nodes alone the result depends on the input only.
///
/// Throws infeasible_error, naming the device and the bytes, when and only when a device cannot hold one microbatch
/// that runs alone; input_error for an ill-formed problem, or when an option leaves out a phase that there is not.
[[nodiscard]] PULSE_INLINE synthesis synthesize(const schedule_problem& problem, const synthesis_options& options = {},
                                                std::span<const schedule> known = {});

namespace detail {

/// `synthesize`, where `prove` has its turns too.
[[nodiscard]] PULSE_INLINE synthesis synthesize_proving(const schedule_problem& problem,
                                                        const synthesis_options& options,
                                                        std::span<const schedule> known, const proof_of& prove);

} // namespace detail

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/synthesize.ipp> // IWYU pragma: keep
#endif
