#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include <pulse/schedule/bound.hpp>
#include <pulse/schedule/certify.hpp>
#include <pulse/schedule/ilp_solver.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/search_budget.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/tighten_bound.hpp>

namespace pulse {

/// `synthesize`, with proofs: local search, `certify` with an integer-program solver, and `tighten_bound` take turns, so
/// that most small problems end with a schedule that is known to be optimal.
///
/// Nodes are counted as those three count theirs. A stop request returns the best schedule so far. With
/// a limit of nodes alone the result depends on the input only. Throws as `synthesize` does.
template <class Solver>
[[nodiscard]] synthesis synthesize(const schedule_problem& problem, const synthesis_options& options, Solver& solver,
                                   std::span<const schedule> known = {}) {
    detail::require_ilp_solver<Solver>();
    const search_budget clock{options.limit};
    synthesis out{};
    // Shares of what is left: a quarter of it for the first schedules, then proof and search by turns.
    const auto share = [&](double part) {
        search_limit limit = options.limit;
        limit.seconds = part * std::max(0.0, options.limit.seconds - clock.seconds());
        const auto left = std::max<std::int64_t>(0, options.limit.nodes - out.nodes);
        limit.nodes = left == std::numeric_limits<std::int64_t>::max()
                          ? left
                          : static_cast<std::int64_t>(part * static_cast<double>(left));
        return limit;
    };
    const auto report = [&](const synthesis_progress& p) {
        if (!options.progress) { return; }
        const double makespan = std::min(p.makespan_us, out.makespan_us);
        const double lower = std::max(p.lower_bound_us, out.lower_bound_us);
        options.progress({clock.seconds(), makespan, std::min(lower, makespan)});
    };
    out.makespan_us = std::numeric_limits<double>::infinity();
    out = synthesize(problem, {share(0.15), report}, known);
    schedule_bound bound = bound_schedule(problem);
    const auto prove = [&](double part) {
        bound.makespan_us = out.lower_bound_us;
        auto proof = certify(problem, bound, out.best, solver, share(part), {}, report);
        out.best = std::move(proof.best);
        out.makespan_us = proof.makespan_us;
        out.lower_bound_us = std::max(out.lower_bound_us, proof.lower_bound_us);
        out.nodes += proof.nodes;
        out.finished = proof.closed;
    };
    const auto improve = [&](double part) {
        bound.makespan_us = out.lower_bound_us;
        auto found = improve_schedule(problem, bound, out.best, share(part), report);
        out.best = std::move(found.best);
        out.makespan_us = found.makespan_us;
        out.nodes += found.nodes;
        out.finished = found.finished;
    };
    const auto tighten = [&](double part) {
        bound.makespan_us = out.lower_bound_us;
        auto proof = tighten_bound(problem, bound, out.makespan_us, share(part));
        if (!proof.better.devices.empty() && proof.makespan_us < out.makespan_us) {
            out.best = std::move(proof.better);
            out.makespan_us = proof.makespan_us;
        }
        out.lower_bound_us = std::max(out.lower_bound_us, proof.lower_bound_us);
        out.nodes += proof.nodes;
        out.finished = out.proved();
        report({0, out.makespan_us, out.lower_bound_us});
    };
    for (const double part : {0.3, 0.5}) {
        if (!out.proved()) { prove(part / 3); }
        if (!out.proved()) { tighten(part); }
        if (!out.proved()) { improve(part / 2); }
    }
    if (!out.proved()) { prove(0.6); }
    if (!out.proved()) { tighten(1); }
    out.lower_bound_us = std::min(out.lower_bound_us, out.makespan_us); // sums are rounded
    out.seconds = clock.seconds();
    return out;
}

} // namespace pulse
