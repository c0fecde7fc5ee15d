#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/program.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/simulate/simulation.hpp>
#include <pulse/simulate/simulation_options.hpp>

namespace pulse {

/// Simulates the programs with one clock per rank, as the executor runs them. Sends and receives start in program order
/// and do not block their rank; an instruction waits for the receives of the buffers that it touches, and a release or
/// a write also waits for the sends of its buffer. A message starts when both sides have posted it, the previous
/// message of the same directed pair has left, and the links that it shares with other pairs are free; it leaves after
/// bytes / bandwidth and arrives one latency later. A shared link carries one message at a time: the one that can start
/// first, on ties the one that was ready first. The gradients of a stage are reduced over replicas while the rank
/// continues, on dedicated or shared links; the optimizer step waits for them. All replicas do the same at the same
/// time.
///
/// Times are in microseconds. Throws input_error when the programs wait for messages that never come or disagree about
/// them, or when the options do not have one entry per rank or pair.
[[nodiscard]] PULSE_CONSTEXPR simulation simulate(const plan& planned, const step_model& model,
                                                  const std::vector<program>& programs,
                                                  const simulation_options& options = {});

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/simulate/simulator.ipp> // IWYU pragma: keep
#endif
