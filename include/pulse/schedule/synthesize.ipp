#pragma once

#include <span>

#include <pulse/core/separate.hpp>
#include <pulse/schedule/phases.hpp>
#include <pulse/schedule/problem.hpp>
#include <pulse/schedule/schedule.hpp>
#include <pulse/schedule/synthesis.hpp>
#include <pulse/schedule/synthesize.hpp>
#include <pulse/schedule/synthesizer.hpp>

namespace pulse {

PULSE_INLINE synthesis detail::synthesize_proving(const schedule_problem& problem, const synthesis_options& options,
                                                  std::span<const schedule> known, const proof_of& prove) {
    require_phases(options);
    synthesizer run{problem, options, prove};
    return run_phases(run, known);
}

PULSE_INLINE synthesis synthesize(const schedule_problem& problem, const synthesis_options& options,
                                  std::span<const schedule> known) {
    return detail::synthesize_proving(problem, options, known, {});
}

} // namespace pulse
