#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// Executes the programs on a clock, as the executor does: sends and receives are started in program order and do not
/// hold up their rank; an instruction waits for the receives of what it touches, and a release (or what changes a
/// buffer) for the sends of it. A message starts when both sides have posted it, the one before it on the same directed
/// pair has left, and the links that it shares with other pairs are free; it takes bytes / bandwidth to leave and the
/// latency more to arrive. Shared links carry one message at a time: the one that can start first, and of several the
/// one that was ready first. The gradients of a stage are reduced over replicas while the rank goes on, on links of
/// their own or on shared ones; the optimizer step waits for them. All replicas do the same at the same time.
///
/// Times in microseconds. Throws input_error when the programs wait for messages that never come or disagree about
/// them, or the options do not have one entry for each rank or pair.
[[nodiscard]] PULSE_CONSTEXPR simulation simulate(const plan& planned, const step_model& model,
                                                  const std::vector<program>& programs,
                                                  const simulation_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/simulate/simulator.ipp> // IWYU pragma: keep
#endif
