#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/plan/footprint.hpp>
#include <pulse/plan/lower.hpp>
#include <pulse/plan/plan.hpp>
#include <pulse/plan/step_model.hpp>
#include <pulse/profile/cost_table.hpp>
#include <pulse/tune/plan_pipeline.hpp>

namespace pulse {

/// What a rank keeps of its parameters, in multiples of their bytes as scalars.
struct parameter_memory {
    /// All: values, gradients, moments, average, master weights.
    int copies{5};
    /// Of those, how many are spread over the replicas of a stage instead of kept by each (optimizer_replicas::sharded).
    int sharded_copies{};
    int scalar_bytes{4};
};

/// Bytes in which a rank of `device` receives gradients of other replicas: what replica_sum takes. Gradients have at least 4
/// bytes an element.
[[nodiscard]] constexpr std::int64_t replica_bytes_on(const step_model& model, int device, int replicas,
                                                      int scalar_bytes) noexcept {
    std::int64_t most = 0;
    for (int s = 0; s != model.stage_count(); ++s) {
        if (model.device_of_stage(s) != device) { continue; }
        std::int64_t bytes = 0;
        for (int l = model.first_layer(s); l <= model.last_layer(s); ++l) { bytes += model.layer(l).parameter_bytes; }
        const std::int64_t share =
            replica_share_bytes(bytes / scalar_bytes, model.last_layer(s) - model.first_layer(s) + 1, replicas,
                                scalar_bytes < 4 ? 4 : scalar_bytes);
        most = most < share ? share : most;
    }
    return replicas < 2 ? 0 : most * (replicas - 1);
}

/// What all ranks of a plan's replicas send each other in a step: every gradient to the replica that sums it from all others,
/// and the sum back, or the new weight where state is sharded.
[[nodiscard]] constexpr std::int64_t replica_traffic_bytes(const step_model& model, int replicas,
                                                           const parameter_memory& kept) noexcept {
    std::int64_t bytes = 0;
    for (int l = 0; l != model.layer_count(); ++l) { bytes += model.layer(l).parameter_bytes; }
    const int gradient_bytes = kept.scalar_bytes < 4 ? 4 : kept.scalar_bytes;
    const int back = kept.sharded_copies > 0 ? kept.scalar_bytes : gradient_bytes;
    return replicas < 2 ? 0 : (replicas - 1) * (bytes / kept.scalar_bytes) * (gradient_bytes + back);
}

/// Bytes that each device takes for a plan of planned.data_degree replicas: its step's memory, its parameters with all that
/// is kept of them, and room for gradients of other replicas. Exact for a rank whose state is not sharded; a share of state is
/// counted with one element for each layer (and for the conditioning module) more than its D-th part, which is the most it
/// can have.
[[nodiscard]] constexpr std::vector<std::int64_t> peak_bytes(const plan& planned, const cost_table& costs,
                                                             const parameter_memory& kept) {
    const step_model model{planned, costs};
    std::vector<std::int64_t> peaks =
        peak_bytes(planned, model, lower(planned, model), kept.copies - kept.sharded_copies);
    for (int d = 0; d != model.device_count(); ++d) {
        std::int64_t& peak = peaks[static_cast<std::size_t>(d)];
        std::int64_t layers = 1;
        for (int l = 0; l != model.layer_count(); ++l) {
            layers += model.device_of_stage(model.stage_of_layer(l)) == d ? 1 : 0;
        }
        const std::int64_t elements = parameter_bytes_on(planned.cut, costs, d, 1) / kept.scalar_bytes;
        const std::int64_t share = planned.data_degree < 2 ? elements : elements / planned.data_degree + layers;
        peak += kept.sharded_copies * share * kept.scalar_bytes;
        peak += replica_bytes_on(model, d, planned.data_degree, kept.scalar_bytes);
    }
    return peaks;
}

} // namespace pulse
