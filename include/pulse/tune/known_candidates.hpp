#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/candidate.hpp>
#include <pulse/tune/candidate_bound.hpp>
#include <pulse/tune/candidate_plan.hpp>
#include <pulse/tune/least_memory.hpp>
#include <pulse/tune/prepared_candidate.hpp>
#include <pulse/tune/scaled_costs.hpp>
#include <pulse/tune/search_space.hpp>

namespace pulse::detail {

/// Caches what a search asks of its candidates: costs, cuts and least memory, which many candidates have in common, are
/// made once; bounds and plans are made on request. Refers to its constructor's arguments.
class known_candidates {
public:
    /// A cut, or why there is none.
    struct maybe_cut {
        std::optional<partition> cut{};
        std::string why{};
    };

    known_candidates(const cost_source& costs_of, const cluster& machine, const tune_options& options) :
        costs_of_{costs_of}, machine_{machine}, options_{options} {}

    [[nodiscard]] const cost_table& costs(int microbatch_size);
    [[nodiscard]] memory_limits limits(const tune_candidate& c) const;
    [[nodiscard]] const maybe_cut& cut(const tune_candidate& c);
    /// The least memory of a candidate with the cut `here`, for the device that has the least left.
    [[nodiscard]] const least_memory& least(const tune_candidate& c, const partition& here);
    [[nodiscard]] prepared_candidate prepare(const tune_candidate& c);
    /// Whether frozen components run in the candidate's step.
    [[nodiscard]] bool encodes(const tune_candidate& c);
    [[nodiscard]] double bound_us(const tune_candidate& c, const candidate_step& step, double known_us);
    /// Its frozen work is only estimated.
    [[nodiscard]] evaluated_candidate evaluate(const tune_candidate& c, const prepared_candidate& ready);
    /// With times for its frozen tasks and a simulated step.
    [[nodiscard]] evaluated_candidate filled(const tune_candidate& c, const prepared_candidate& ready,
                                             const evaluated_candidate& alone, std::int64_t placements);

private:
    using cut_key = std::tuple<int, int, int, int, int, int, int, int, int, double>;

    const cost_source& costs_of_;
    const cluster& machine_;
    const tune_options& options_;
    std::map<int, cost_table> costs_{};
    std::map<cut_key, maybe_cut> cuts_{};
    std::map<std::tuple<cut_key, int, int>, least_memory> least_{};

    [[nodiscard]] cut_key key_of(const tune_candidate& c) const;
};

} // namespace pulse::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/known_candidates.ipp> // IWYU pragma: keep
#endif
