#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/plan/verdict.hpp>

namespace pulse {

/// Result of `check`.
struct check_report {
    /// The first violation in words, naming rank, instruction index and instruction; empty when there is none.
    std::string violation{};
    /// Most bytes of buffers alive at one time on each rank (without workspace); filled in when there is no violation.
    std::vector<std::int64_t> live_peak_bytes{};

    [[nodiscard]] bool ok() const noexcept { return violation.empty(); }
};

/// The first violation of what `check` proves, in words, or none; if none, `live_peak_bytes` has one entry per rank.
[[nodiscard]] PULSE_CONSTEXPR verdict first_violation(const plan& planned, const step_model& model,
                                                      const std::vector<program>& programs,
                                                      std::vector<std::int64_t>& live_peak_bytes);

/// Proves that the programs do the plan's step even if each send blocks until its receive is reached (rendezvous).
///
/// Each rank has exactly the passes of its schedule and its frozen tasks, each in order, and every message of the step
/// once on either side, with equal part sizes. Every buffer is written before it is read, is not overwritten while
/// alive, and is released exactly once. Every rank that reads a frozen result keeps it once. No waits form a cycle. The
/// proof does not rely on `lower`. It covers dependencies between ranks, too: a message carries live buffers only, so
/// what a pass reads can only come from the pass that makes it.
[[nodiscard]] PULSE_INLINE check_report check(const plan& planned, const step_model& model,
                                              const std::vector<program>& programs);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/check.ipp> // IWYU pragma: keep
#endif
