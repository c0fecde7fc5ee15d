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

/// Cuts the model for a candidate; throws infeasible_error, naming the skip or the layers, if that is impossible or a
/// microbatch takes more than 2^40 bytes in a layer, and input_error for costs that check_costs refuses.
///
/// Devices have equal speeds unless `device_speed` has one for each device of the pipeline, relative to that of the
/// costs. Folded: the skip-aware cut, if possible one that leaves room for one microbatch; if `fold` asks for it, the
/// cut by load, which needs equal speeds. Sequential and interleaved: the cut by load. Within the slack a cut takes
/// fewer bytes where its partitioner supports that.
[[nodiscard]] PULSE_CONSTEXPR partition cut_candidate(const cost_table& costs, const tune_candidate& c,
                                                      const parameter_memory& kept, const memory_limits& limits,
                                                      const std::vector<double>& device_speed = {});

/// The costs by which a cut balances devices: with previews, F counts one and a half times.
[[nodiscard]] constexpr cost_table balanced_costs(cost_table costs, bool self_conditioning) {
    for (layer_cost& layer : costs.layers) { layer.forward_us *= self_conditioning ? 1.5 : 1.0; }
    return costs;
}

/// The costs by which a candidate is cut. Over devices of unequal speeds each layer also has its share of the
/// optimizer's time: a slow device might otherwise get all the layers with many parameters and little work.
[[nodiscard]] PULSE_CONSTEXPR cost_table costs_to_cut(const cost_table& costs, const tune_candidate& c,
                                                      const cluster& machine, const candidate_options& options);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/candidate_cut.ipp> // IWYU pragma: keep
#endif
