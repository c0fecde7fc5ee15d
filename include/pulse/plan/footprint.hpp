#pragma once

#include <cstdint>

#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Scratch that the passes of `device` share: the largest of its layers.
///
/// After a layer's own there is room for what a recompute writes and nobody reads: at the first layer of a backbone the
/// conditioning (the one in use must not be touched), and at the last layer of a stage the output where
/// step_model::drops_again; a layer with a skip from one that runs forward only leaves its gradient there.
[[nodiscard]] constexpr std::int64_t workspace_bytes_of(const step_model& model, int device) noexcept {
    std::int64_t largest = 0;
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        const std::int64_t own = model.layer(l).workspace_bytes;
        const chain_costs chain = model.costs().chain_of(l);
        const bool begins = l == chain.first_layer;
        std::int64_t again = begins ? chain.conditioning_bytes : 0;
        // The gradient of a skip that has none, from a layer that makes one all the same.
        for (const int e : model.edges_into(model.stage_of_layer(l))) {
            const skip_cost& edge = model.edge(e);
            const bool dropped = edge.to == l && model.has_gradient(l) && !model.has_gradient(edge.from);
            if (dropped && again < edge.bytes) { again = edge.bytes; }
        }
        if (model.drops_again(l) && again < model.layer(l).sent_bytes()) { again = model.layer(l).sent_bytes(); }
        const std::int64_t bytes = begins || again > 0 ? aligned(own) + again : own;
        largest = largest < bytes ? bytes : largest;
    }
    return largest;
}

/// Room for one share of a stage's gradients, where they are summed over `replicas`: `elements` in all, of `layers`
/// layers, each share of a layer being up to one element more than its D-th part. A rank has D - 1 of them, of its
/// largest stage.
[[nodiscard]] constexpr std::int64_t replica_share_bytes(std::int64_t elements, int layers, int replicas,
                                                         int element_bytes) noexcept {
    // One more for the conditioning module, which has shares of its own.
    return replicas < 2 ? 0 : aligned((elements / replicas + layers + 1) * element_bytes);
}

} // namespace pulse
