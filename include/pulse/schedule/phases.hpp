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
    /// Which of synthesis_phases it is.
    std::string_view name{};
    /// Of what the limit leaves, at most all of it; 0: what the phase before has left of its share.
    double share{};
    std::int64_t nodes{};
    /// Whether it can do anything, once its turn has begun.
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

/// Search and proof by turns.
inline constexpr phase repeated_phases[]{
    {"shifts", 0.5, any_nodes, &synthesizer::always, &synthesizer::run_shifts},
    {"devices", 0.1, any_nodes, &synthesizer::can_raise_devices, &synthesizer::run_devices},
    {"solver", 0.3, any_nodes, &synthesizer::unproved, &synthesizer::run_solver},
    {"states", 1, any_nodes, &synthesizer::can_tighten, &synthesizer::run_states},
    {"shifts", 1, any_nodes, &synthesizer::tightened, &synthesizer::run_shifts},
};

/// Of the shares of the first rounds; later ones have them whole.
inline constexpr double first_rounds[]{0.3, 0.5, 0.7};
/// Of a turn of the first round, where nothing else limits it; each round doubles them.
inline constexpr std::int64_t first_round_nodes = 2'000'000;

/// `share` and `nodes` apply to every phase.
inline void take_turns(synthesizer& run, std::span<const phase> phases, double share, std::int64_t nodes) {
    for (const phase& p : phases) {
        if (p.share > 0) { run.begin_turn(std::min(1.0, p.share * share), std::min(p.nodes, nodes)); }
        if (run.leaves_out(p.name)) { continue; }
        if ((run.*p.when)()) { (run.*p.run)(); }
    }
}

/// Throws input_error when what is left out is none of synthesis_phases.
inline void require_phases(const synthesis_options& options) {
    for (const std::string& name : options.without) {
        if (std::find(synthesis_phases.begin(), synthesis_phases.end(), name) != synthesis_phases.end()) { continue; }
        std::string all{};
        for (const std::string_view known : synthesis_phases) { all.append(all.empty() ? "" : ", ").append(known); }
        throw input_error("synthesis_options: '" + name + "' is no phase; there are " + all);
    }
}

/// Until the limit, until incumbent and bound meet, or until every phase that comes again is left out.
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
        state.budget.count(1); // shares of the last nodes may be too small for anybody to use
        if (nodes < std::int64_t{1} << 40) { nodes *= 2; }
    }
    return state.result();
}

} // namespace pulse::detail
