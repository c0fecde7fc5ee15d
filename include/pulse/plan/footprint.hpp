#pragma once

#include <cstdint>

#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Bytes of scratch that the passes of `device` share: the most that any of its layers needs.
///
/// Behind a layer's own scratch is room for what is written but never read: at the first layer of a backbone, the
/// conditioning that a recompute makes again (the one in use must stay untouched); at the last layer of a stage, the
/// output if step_model::drops_again; at a layer with a skip from a forward-only layer, the gradient of that skip.
[[nodiscard]] constexpr std::int64_t workspace_bytes_of(const step_model& model, int device) noexcept {
    std::int64_t largest = 0;
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        const std::int64_t own = model.layer(l).workspace_bytes;
        const chain_costs chain = model.costs().chain_of(l);
        const bool begins = l == chain.first_layer;
        std::int64_t again = begins ? chain.conditioning_bytes : 0;
        // The layer computes a gradient of this skip although the source of the skip, a forward-only layer, takes none.
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

/// Bytes of a slot for one share of a stage's gradients while D = `replicas` are summed. The stage has `elements` in
/// `layers` layers; a layer's share has up to one element more than a D-th of the layer. A rank has D - 1 slots, sized
/// for its largest stage.
[[nodiscard]] constexpr std::int64_t replica_share_bytes(std::int64_t elements, int layers, int replicas,
                                                         int element_bytes) noexcept {
    // One more element for the conditioning module, which is shared separately.
    return replicas < 2 ? 0 : aligned((elements / replicas + layers + 1) * element_bytes);
}

} // namespace pulse
