#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/schedule/construct/list_scheduler.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesizer.hpp>

namespace pulse::detail {

/// A phase of a synthesis.
struct phase {
    /// One of synthesis_phases.
    std::string_view name{};
    /// Share of the remaining limit, at most 1; 0: continues with what the previous phase left of its share.
    double share{};
    std::int64_t nodes{};
    /// Whether the phase can do anything; asked once its turn has begun.
    bool (synthesizer::*when)() const {};
    void (synthesizer::*run)(){};
};

inline constexpr std::int64_t any_nodes = std::numeric_limits<std::int64_t>::max();

/// Schedules first, then a small proof, which ends most small problems.
inline constexpr phase opening_phases[]{
    {"known_orders", 1, any_nodes, &synthesizer::always, &synthesizer::run_known_orders},
    {"lists", 0, any_nodes, &synthesizer::wants_lists, &synthesizer::run_lists},
    {"devices", 0.08, 100'000, &synthesizer::can_raise_devices, &synthesizer::run_devices},
    {"states", 0.15, 20'000, &synthesizer::can_tighten, &synthesizer::run_states},
    {"windows", 0.1, any_nodes, &synthesizer::has_few_windows, &synthesizer::run_windows},
    {"patterns", 0.35, any_nodes, &synthesizer::has_steady_state, &synthesizer::run_patterns},
    {"justification", 0, any_nodes, &synthesizer::unproved, &synthesizer::run_justification},
};

/// Search and proof take turns.
inline constexpr phase repeated_phases[]{
    {"shifts", 0.5, any_nodes, &synthesizer::always, &synthesizer::run_shifts},
    {"devices", 0.1, any_nodes, &synthesizer::can_raise_devices, &synthesizer::run_devices},
    {"solver", 0.3, any_nodes, &synthesizer::unproved, &synthesizer::run_solver},
    {"states", 1, any_nodes, &synthesizer::can_tighten, &synthesizer::run_states},
    {"shifts", 1, any_nodes, &synthesizer::tightened, &synthesizer::run_shifts},
};

/// Factors on the shares in the first rounds; later rounds use 1.
inline constexpr double first_rounds[]{0.3, 0.5, 0.7};
/// Most nodes of a turn in the first round; doubles each round.
inline constexpr std::int64_t first_round_nodes = 2'000'000;

/// Runs the phases in order; `share` and `nodes` apply to each of them.
inline void take_turns(synthesizer& run, std::span<const phase> phases, double share, std::int64_t nodes) {
    for (const phase& p : phases) {
        if (p.share > 0) { run.begin_turn(std::min(1.0, p.share * share), std::min(p.nodes, nodes)); }
        if (run.leaves_out(p.name)) { continue; }
        if ((run.*p.when)()) { (run.*p.run)(); }
    }
}

/// Throws input_error when an option leaves out a name that is not in synthesis_phases.
inline void require_phases(const synthesis_options& options) {
    for (const std::string& name : options.without) {
        if (std::find(synthesis_phases.begin(), synthesis_phases.end(), name) != synthesis_phases.end()) { continue; }
        std::string all{};
        for (const std::string_view known : synthesis_phases) { all.append(all.empty() ? "" : ", ").append(known); }
        throw input_error("synthesis_options: '" + name + "' is not a phase; the phases are " + all);
    }
}

/// Runs until the limit, until incumbent and bound meet, or once when all repeated phases are left out.
[[nodiscard]] inline synthesis run_phases(synthesizer& run, std::span<const schedule> known) {
    synthesis_state& state = run.state();
    for (const auto& k : known) { state.take(k); }
    // Every other phase needs a schedule.
    if (run.leaves_out("lists")) { state.offer(list_schedule(state.problem, {list_effort::one, 0, 0, 0})); }
    take_turns(run, opening_phases, 1, any_nodes);
    const auto left_out = [&](const phase& p) { return run.leaves_out(p.name); };
    if (std::all_of(std::begin(repeated_phases), std::end(repeated_phases), left_out)) { return state.result(); }
    std::int64_t nodes = first_round_nodes;
    for (std::size_t round = 0; !state.proved() && !state.budget.ended(); ++round) {
        take_turns(run, repeated_phases, round < std::size(first_rounds) ? first_rounds[round] : 1.0, nodes);
        state.budget.count(1); // shares of the last nodes may be too small for any phase to use
        if (nodes < std::int64_t{1} << 40) { nodes *= 2; }
    }
    return state.result();
}

} // namespace pulse::detail
