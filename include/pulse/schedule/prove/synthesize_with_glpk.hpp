#pragma once

#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/prove/glpk.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize_with.hpp>

namespace pulse {

/// `synthesize` with GLPK's proofs: what plan_request::search takes.
[[nodiscard]] inline synthesis synthesize_with_glpk(const schedule_problem& problem, const synthesis_options& options) {
    glpk_solver solver;
    return synthesize(problem, options, solver);
}

} // namespace pulse
