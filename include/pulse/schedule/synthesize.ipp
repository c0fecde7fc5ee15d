#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/synthesizer.hpp>

namespace pulse {

namespace detail {

/// Schedules first, then a small proof, which ends most small problems, then search and proof by turns. `prove(part)`
/// is one more kind of proof that may use a part of what is left.
template <class Prove>
[[nodiscard]] synthesis take_turns(synthesizer& run, std::span<const schedule> known, const Prove& prove) {
    for (const auto& k : known) { run.take(k); }
    run.run_known_orders();
    run.run_lists({});
    run.budget().begin_turn(0.08, 100'000);
    run.run_devices();
    (void)run.tighten(0.15, 20'000);
    run.budget().begin_turn(0.1);
    run.run_windows();
    run.budget().begin_turn(0.35);
    run.run_patterns(50000);
    run.run_justification();
    constexpr double shares[] = {0.3, 0.5, 0.7};
    std::int64_t nodes = 2'000'000; // where nothing else limits a turn
    for (std::size_t round = 0; !run.proved() && !run.budget().ended(); ++round) {
        const double share = round < 3 ? shares[round] : 1.0;
        run.budget().begin_turn(0.5 * share, nodes);
        run.run_walks();
        run.budget().begin_turn(0.1 * share, nodes);
        run.run_devices();
        run.run_shaving(std::min(1.0, 3 * share), nodes);
        if (!run.proved()) { prove(0.3 * share); }
        if (!run.tighten(share, nodes)) {
            run.budget().begin_turn(share, nodes);
            run.run_walks();
        }
        run.budget().count(1); // shares of the last nodes may be too small for anybody to use
        if (nodes < std::int64_t{1} << 40) { nodes *= 2; }
    }
    return run.result();
}

PULSE_INLINE synthesis synthesize_proving(const schedule_problem& problem, const synthesis_options& options,
                                          std::span<const schedule> known, const proof_of& prove) {
    synthesizer run{problem, options.limit, options.progress};
    return take_turns(run, known, [&](double part) {
        const certificate proof = prove(run.bound(), run.best(), run.budget().turn(part));
        run.budget().count(proof.nodes);
        run.take(proof.best);
        run.raise_bound(proof.lower_bound_us);
    });
}

} // namespace detail

PULSE_INLINE synthesis synthesize(const schedule_problem& problem, const synthesis_options& options,
                                  std::span<const schedule> known) {
    detail::synthesizer run{problem, options.limit, options.progress};
    return detail::take_turns(run, known, [](double) {});
}

} // namespace pulse
