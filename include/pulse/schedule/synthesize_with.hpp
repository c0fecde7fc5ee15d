#pragma once

#include <concepts>
#include <span>

#include <pulse/schedule/bound/lower_bound.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/certify.hpp>
#include <pulse/schedule/prove/ilp_solver.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>

namespace pulse {

/// `synthesize` with one more kind of proof: `certify` takes turns with an integer-program solver, so more problems end
/// with a schedule that is known to be optimal.
///
/// Nodes of the solver count too. Throws as `synthesize` does.
template <class Solver>
    requires(!std::convertible_to<Solver&, std::span<const schedule>>)
[[nodiscard]] synthesis synthesize(const schedule_problem& problem, const synthesis_options& options, Solver& solver,
                                   std::span<const schedule> known = {}) {
    detail::require_ilp_solver<Solver>();
    return detail::synthesize_proving(
        problem, options, known, [&](const schedule_bound& bound, const schedule& best, const search_limit& limit) {
            return certify(problem, bound, best, solver, limit);
        });
}

} // namespace pulse
