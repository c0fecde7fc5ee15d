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

/// What a check found.
struct check_report {
    /// The first violation in words, naming rank, instruction index and instruction; empty when there is none.
    std::string violation{};
    /// Most bytes of buffers alive at one time on each rank (without workspace); filled in when there is no violation.
    std::vector<std::int64_t> live_peak_bytes{};

    [[nodiscard]] bool ok() const noexcept { return violation.empty(); }
};

/// The first violation of what `check` proves, in words, or none; then `live_peak_bytes` has an entry for each rank.
[[nodiscard]] PULSE_CONSTEXPR verdict first_violation(const plan& planned, const step_model& model,
                                                      const std::vector<program>& programs,
                                                      std::vector<std::int64_t>& live_peak_bytes);

/// Proves that the programs do the plan's step, with sends that block until their receive is reached (rendezvous).
///
/// Each rank has exactly the passes of its schedule in that order, its frozen tasks in theirs, and every message of the
/// step once on either side, with equal part sizes; every buffer is written before it is read, not overwritten while
/// alive, released once, and none is left at the end; every result is kept by all that read it, once; no waits form a
/// cycle. Independent of `lower`. A program whose reads are served this way also respects the dependencies between
/// ranks: what a pass reads can only come from the pass that makes it, since a message carries live buffers only.
[[nodiscard]] PULSE_INLINE check_report check(const plan& planned, const step_model& model,
                                              const std::vector<program>& programs);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/check.ipp> // IWYU pragma: keep
#endif
