#pragma once

#include <cstdint>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/fill/fill_schedule.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>

namespace pulse {

/// Passes and frozen work in one order, and what was proved of it.
struct exact_fill {
    filled_schedule best{};
    /// When the last device ends what it does behind its passes and tasks.
    double end_us{};
    /// An end that no order can beat.
    double bound_us{};
    /// States of the search.
    std::int64_t nodes{};

    /// Whether the best is proved to be the best, up to the rounding of sums.
    [[nodiscard]] constexpr bool closed() const noexcept { return gap_of(end_us, bound_us) <= 1e-9; }
};

/// Passes, and layers of every sample, that an exact search would order.
[[nodiscard]] constexpr std::int64_t exact_fill_size(const schedule_problem& problem, const frozen_work& work) {
    std::int64_t layers = 0;
    for (const frozen_component& c : work.components) { layers += static_cast<std::int64_t>(c.layers.size()); }
    const auto stages = static_cast<std::int64_t>(problem.stages.size());
    return stages * problem.passes_per_stage() * problem.microbatches + layers * work.samples;
}

/// The earliest end over all orders of passes and layers, all hosts and all sizes of calls, by branch and bound from
/// what fill_schedule finds from `passes`; never later than that. after_us of the work counts.
///
/// Samples that are called together stay together from the first layer to the last. Activations of chains that pause
/// are kept within memory limits, but the bound leaves them out: where they bind it may stay open. Meant for some tens
/// of passes and layers (exact_fill_size); `limit` counts states, each of which takes microseconds. Throws as
/// fill_schedule does.
[[nodiscard]] PULSE_INLINE exact_fill fill_exactly(const schedule_problem& problem, const schedule& passes,
                                                   const frozen_work& work, double passes_bound_us,
                                                   const search_limit& limit,
                                                   const fill_options& first = fill_options{});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/schedule/fill/exact_fill.ipp> // IWYU pragma: keep
#endif
