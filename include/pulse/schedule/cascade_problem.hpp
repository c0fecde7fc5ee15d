#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/schedule/make_problem.hpp>
#include <pulse/schedule/problem.hpp>

namespace pulse {

namespace detail {

/// Appends the stages of another problem to those of `problem`, on the same devices, as a chain of its own.
constexpr void add_chain(schedule_problem& problem, const schedule_problem& other) {
    const int stages = static_cast<int>(problem.stages.size());
    const auto shifted = [stages](stage_pass p) { return stage_pass{p.op, p.stage + stages}; };
    problem.further_chains.push_back(stages);
    for (const auto& s : other.stages) { problem.stages.push_back(s); }
    for (const auto& d : other.dependencies) {
        problem.dependencies.push_back({shifted(d.before), shifted(d.after), d.lag_us});
    }
    for (const auto& h : other.holds) {
        problem.holds.push_back({h.device, shifted(h.begin), shifted(h.end), shifted(h.also_end), h.bytes});
    }
}

} // namespace detail

/// The scheduling problem of two backbones on one set of devices, cut by `first_cut` and `second_cut`
/// (find_cascade_cut). Both run the same number of microbatches; the second one's stages are numbered after the
/// first's. list_search orders it, and its bound is valid because the two share only devices. Throws input_error as
/// make_problem does, for cuts over different numbers of devices, and for a memory limit, since several chains are not
/// ordered under one: peak_holds gives the bytes that an order takes.
[[nodiscard]] inline schedule_problem make_cascade_problem(const cost_table& first, const partition& first_cut,
                                                           const cost_table& second, const partition& second_cut,
                                                           const problem_options& options) {
    if (first_cut.devices != second_cut.devices) {
        throw input_error("cascade: the two cuts must have the same number of devices");
    }
    if (!options.memory_limit_bytes.empty()) { throw input_error("cascade: memory limits are not supported"); }
    schedule_problem problem = make_problem(first, first_cut, options);
    problem_options behind = options;
    std::vector<char>& flags = behind.recompute.stages;
    const auto first_stages = static_cast<std::ptrdiff_t>(std::min(flags.size(), first_cut.stages.size()));
    flags.erase(flags.begin(), flags.begin() + first_stages);
    detail::add_chain(problem, make_problem(second, second_cut, behind));
    return problem;
}

} // namespace pulse
