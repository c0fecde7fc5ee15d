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
    /// What crosses devices, forward and backward: activations, open residuals and conditioning; and skip tensors; with
    /// their gradients.
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};

    [[nodiscard]] constexpr bool operator==(const prediction&) const = default;
};

/// Everything a run needs to know: plain data that can be saved and read (`pulse-plan/1`).
struct plan {
    label model{};
    int pipeline_degree{1};
    int data_degree{1};
    /// How many neighbouring replicas, those of a node, sum their gradients among themselves before such groups do: a
    /// power of two below data_degree that divides it. 1: every replica exchanges with every other. The sums are the
    /// same, bit for bit.
    int node_replicas{1};
    int microbatches{1};
    int microbatch_size{1};
    bool split_backward{true};
    skip_routing routing{skip_routing::direct};
    stage_recomputation recompute{};
    /// A stage's weights are updated as soon as its gradients are there, in whose memory those of other stages of the
    /// device come to lie (place_gradients); otherwise all gradients are there until the step ends. No bit depends on
    /// it.
    bool gradient_release{};
    /// How many sends each rank has slots for beyond what a step needs whose sends block. A sent tensor keeps its slot
    /// until its rank needs one of that size and has none left (with_releases).
    int spare_sends{2};
    partition cut{};
    schedule order{};
    /// Self-conditioning: how many microbatches of a step, the last ones, have a preview, the model's own answer
    /// without a gradient, which their forward reads.
    int previews{};
    /// Per device, by start: what it encodes for the next step, in the gaps of `order`; empty: nothing.
    std::vector<std::vector<frozen_task>> frozen_tasks{};
    /// Per device: the frozen components whose weights it has.
    std::vector<std::vector<int>> frozen_hosts{};
    /// Of a cascade: the first stage of the second backbone, whose stages and layers are numbered behind those of the
    /// first and lie on the devices the other way round; empty: one backbone.
    std::vector<int> further_chains{};
    prediction predicted{};

    [[nodiscard]] constexpr bool operator==(const plan&) const = default;
    /// Whether node_replicas is what it has to be.
    [[nodiscard]] constexpr bool has_even_groups() const noexcept {
        return node_replicas == 1 || (node_replicas > 1 && (node_replicas & (node_replicas - 1)) == 0 &&
                                      node_replicas < data_degree && data_degree % node_replicas == 0);
    }
};

} // namespace pulse
