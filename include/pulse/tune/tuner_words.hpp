#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/search_space.hpp>
#include <pulse/tune/tuning.hpp>

namespace pulse::detail {

/// What the device that needs most memory needs it for, in words.
[[nodiscard]] inline std::string memory_words(const least_memory& need, std::int64_t limit) {
    return "device " + std::to_string(need.device) + " needs " + std::to_string(need.total_bytes()) + " bytes of " +
           std::to_string(limit) + ": parameters and their copies " + std::to_string(need.parameter_bytes) +
           (need.replica_bytes > 0 ? ", gradients of other replicas " + std::to_string(need.replica_bytes) : "") +
           ", one microbatch " + std::to_string(need.microbatch_bytes) + ", workspace " +
           std::to_string(need.workspace_bytes);
}

/// Throws infeasible_error for a space without candidates.
[[noreturn]] inline void refuse_space(const left_out_candidates& left_out, int global_batch, int devices) {
    if (left_out.unmet > 0) {
        throw infeasible_error("tune: no candidate (of " + std::to_string(left_out.unmet) +
                               ") meets the request: " + left_out.why);
    }
    throw infeasible_error("tune: no degrees and microbatch sizes multiply to the global batch of " +
                           std::to_string(global_batch) + " (devices: " + std::to_string(devices) + ")");
}

/// Throws because there is no plan: says what prevented one, with the nearest case; `needs` as in the tuner.
[[noreturn]] inline void refuse_tuning(const tuning& made, const std::vector<std::int64_t>& needs) {
    if (!made.finished) { throw error("tune: stopped before any plan was found"); }
    std::array<std::size_t, tune_verdicts> counts{};
    const tune_row* named = nullptr;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i != made.rows.size(); ++i) {
        const tune_row& row = made.rows[i];
        ++counts[static_cast<std::size_t>(row.verdict)];
        if (row.verdict != tune_verdict::memory || needs[i] >= least) { continue; }
        named = &row;
        least = needs[i];
    }
    const auto of = [&](tune_verdict v) { return std::to_string(counts[static_cast<std::size_t>(v)]); };
    if (named == nullptr) { named = &made.rows.front(); }
    throw infeasible_error("tune: no feasible plan among " + std::to_string(made.rows.size()) + ": " +
                           of(tune_verdict::memory) + " need more memory, " + of(tune_verdict::cut) +
                           " cannot be cut; " + to_text(named->candidate) + ": " + named->reason);
}

/// Gives every row but the chosen one the reason why it lost, and counts the verdicts.
inline void explain_rows(tuning& made) {
    const double best_us = made.best_row().step_us;
    const auto percent = [&](double us) {
        const std::string digits = std::to_string(100.0 * (us / best_us - 1.0));
        return digits.substr(0, digits.find('.') + 3) + "%";
    };
    for (tune_row& row : made.rows) {
        if (row.verdict == tune_verdict::slower) { row.reason = "slower than the best by " + percent(row.step_us); }
        if (row.verdict == tune_verdict::bound) {
            row.reason = "bound: no order of its passes comes nearer to the best than " + percent(row.bound_us);
        }
        if (row.verdict == tune_verdict::not_reached) { row.reason = "the search was stopped before"; }
        ++made.counts[static_cast<std::size_t>(row.verdict)];
    }
}

} // namespace pulse::detail
