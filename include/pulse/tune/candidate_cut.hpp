#pragma once

#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/memory_limits.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/candidate.hpp>

namespace pulse {

/// Where a candidate cuts the model; throws infeasible_error, naming the skip or the layers, when it cannot.
///
/// Devices have equal speeds unless `device_speed` has one for each of the pipeline, relative to that of the costs.
/// Folded: the skip-aware cut, of those that leave room for one microbatch where there is one, unless `fold` asks for
/// the cut by load, for devices of equal speeds; sequential and interleaved: the cut by load. All take fewer bytes
/// within the slack where their partitioner offers it.
[[nodiscard]] PULSE_CONSTEXPR partition cut_candidate(const cost_table& costs, const tune_candidate& c,
                                                      const parameter_memory& kept, const memory_limits& limits,
                                                      const std::vector<double>& device_speed = {});

/// The costs by which a cut is to balance devices: with previews, F counts once and a half.
[[nodiscard]] constexpr cost_table balanced_costs(cost_table costs, bool self_conditioning) {
    for (layer_cost& layer : costs.layers) { layer.forward_us *= self_conditioning ? 1.5 : 1.0; }
    return costs;
}

/// The costs by which a candidate is cut. Over devices of unequal speeds each layer has its share of the optimizer's
/// time, too: layers with many parameters and little work may all fall to a slow device.
[[nodiscard]] PULSE_CONSTEXPR cost_table costs_to_cut(const cost_table& costs, const tune_candidate& c,
                                                      const cluster& machine, const candidate_options& options);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_cut.ipp> // IWYU pragma: keep
#endif
