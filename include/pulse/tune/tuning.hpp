#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/planned.hpp>
#include <pulse/simulate/simulation_options.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/frozen_placement.hpp>

namespace pulse {

/// Outcome of a candidate.
enum class tune_verdict : std::uint8_t {
    best,
    slower,     ///< evaluated, and another is faster
    bound,      ///< its bound is above the best plans found: not evaluated
    memory,     ///< it needs more than a device has
    cut,        ///< the model cannot be cut for it
    same,       ///< one of its choices has no effect: another candidate gives the same plan
    not_reached ///< the search was stopped first
};
inline constexpr std::size_t tune_verdicts = 7;

[[nodiscard]] constexpr std::string_view name_of(tune_verdict verdict) noexcept {
    switch (verdict) {
    case tune_verdict::best: return "best";
    case tune_verdict::slower: return "slower";
    case tune_verdict::bound: return "bound";
    case tune_verdict::memory: return "memory";
    case tune_verdict::cut: return "cut";
    case tune_verdict::same: return "same";
    case tune_verdict::not_reached: return "not reached";
    }
    return "?";
}

/// A candidate and its evaluation: microseconds of a whole step, bytes of one replica in a step.
struct tune_row {
    tune_candidate candidate{};
    tune_verdict verdict{tune_verdict::not_reached};
    /// One sentence on why it lost; empty for the best.
    std::string reason{};
    /// No order of its passes is faster; 0 if it was not computed.
    double bound_us{};
    /// This and the rest are 0 unless it was evaluated.
    double step_us{};
    double samples_per_s{};
    double bubble_ratio{};
    std::int64_t peak_memory_bytes{}; ///< of the device that needs most
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    std::int64_t gradient_bytes{};

    [[nodiscard]] constexpr bool evaluated() const noexcept {
        return verdict == tune_verdict::best || verdict == tune_verdict::slower;
    }
};

/// Result of the tuner: the best plan, whose prediction covers the whole step with reduction and optimizer.
struct tuning : planned {
    /// What the plan was simulated on: the links between its ranks, shared links, the optimizer's time.
    simulation_options world{};
    /// Where the best plan runs frozen components; without components: nowhere.
    frozen_placement frozen{};
    /// Per device of its pipeline.
    memory_limits limits{};
    /// What was assumed because it was not given, one sentence each.
    std::vector<std::string> assumptions{};
    /// Row of the best plan.
    std::size_t chosen{};
    /// Every candidate, in the order of enumerate_candidates.
    std::vector<tune_row> rows{};
    /// Rows of the best plans, fastest first: as many as were asked for are the fastest of all; the others happened to
    /// be evaluated.
    std::vector<std::size_t> ranking{};
    /// Rows by verdict, [static_cast<std::size_t>(verdict)].
    std::array<std::size_t, tune_verdicts> counts{};
    /// Degrees and microbatch sizes that do not multiply to the global batch; they have no rows.
    int indivisible{};
    /// Candidates that violate a rule of their method or the requested split; they have no rows.
    int unmet{};
    /// Candidates that were evaluated.
    std::size_t evaluations{};
    /// False when a stop request ended the search.
    bool finished{};

    [[nodiscard]] constexpr const tune_row& best_row() const noexcept { return rows[chosen]; }
    /// The candidate of the best row, with the stages that its plan recomputes.
    [[nodiscard]] constexpr tune_candidate best_candidate() const {
        tune_candidate best = best_row().candidate;
        best.recompute = plan.recompute;
        return best;
    }
    [[nodiscard]] constexpr std::size_t count(tune_verdict verdict) const noexcept {
        return counts[static_cast<std::size_t>(verdict)];
    }
};

} // namespace pulse
