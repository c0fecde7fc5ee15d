#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/label.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/schedule/frozen_work.hpp>
#include <pulse/schedule/schedule.hpp>

namespace pulse {

/// What the planner expects of one step of one pipeline replica.
struct prediction {
    double step_us{};
    double lower_bound_us{};
    double bubble_ratio{};
    double samples_per_s{};
    /// Peak bytes of every device.
    std::vector<std::int64_t> peak_memory_bytes{};
    /// Bytes that cross devices, forward and backward, gradients included: boundary_bytes for activations, open
    /// residuals and conditioning, skip_bytes for skip tensors.
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};

    [[nodiscard]] constexpr bool operator==(const prediction&) const = default;
};

/// Everything a run needs to know: plain data that can be saved and read (`pulse-plan/1`).
struct plan {
    label model{};
    int pipeline_degree{1};
    int data_degree{1};
    /// Neighbouring replicas (those of a node) that sum their gradients among themselves before the groups do: a power
    /// of two below data_degree that divides it. 1: every replica exchanges with every other. The sums are the same,
    /// bit for bit.
    int node_replicas{1};
    int microbatches{1};
    int microbatch_size{1};
    bool split_backward{true};
    skip_routing routing{skip_routing::direct};
    stage_recomputation recompute{};
    /// Whether a stage's weights are updated as soon as its gradients are complete, so that other stages of the device
    /// can reuse their memory (place_gradients); if not, all gradients are kept until the step ends. Results are the
    /// same, bit for bit.
    bool gradient_release{};
    /// Sends for which each rank has slots beyond what a step with blocking sends needs. A sent tensor keeps its slot
    /// until its rank needs a slot of that size and none is free (with_releases).
    int spare_sends{2};
    partition cut{};
    schedule order{};
    /// Self-conditioning: the last `previews` microbatches of a step have a preview, a forward without gradient whose
    /// output the microbatch's own forward reads.
    int previews{};
    /// Per device, by start: frozen tasks that encode for the next step in the gaps of `order`; empty: none.
    std::vector<std::vector<frozen_task>> frozen_tasks{};
    /// Per device: the frozen components whose weights it holds.
    std::vector<std::vector<int>> frozen_hosts{};
    /// For a cascade: the first stage of the second backbone, whose stages and layers are numbered after those of the
    /// first and placed on the devices in reverse order; empty: one backbone.
    std::vector<int> further_chains{};
    prediction predicted{};

    [[nodiscard]] constexpr bool operator==(const plan&) const = default;
    /// Whether node_replicas is valid for data_degree.
    [[nodiscard]] constexpr bool has_even_groups() const noexcept {
        return node_replicas == 1 || (node_replicas > 1 && (node_replicas & (node_replicas - 1)) == 0 &&
                                      node_replicas < data_degree && data_degree % node_replicas == 0);
    }
};

} // namespace pulse
