#pragma once

#include <cstdint>

#include <pulse/plan/stage_footprint.hpp>
#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Where every layer of `stage` finds its tensors inside the stage's saved and deferred buffers.
[[nodiscard]] constexpr const stage_footprint& footprint_of(const step_model& model, int stage) noexcept {
    return model.footprint(stage);
}

/// Scratch that the passes of `device` share: the largest of its layers.
///
/// Layer 0 has room for the conditioning after its own: recomputing it must not touch the conditioning that is in use.
[[nodiscard]] constexpr std::int64_t workspace_bytes_of(const step_model& model, int device) noexcept {
    std::int64_t largest = 0;
    for (int l = 0; l != model.layer_count(); ++l) {
        if (model.device_of_stage(model.stage_of_layer(l)) != device) { continue; }
        const std::int64_t own = model.layer(l).workspace_bytes;
        const std::int64_t bytes = l == 0 ? aligned(own) + model.costs().conditioning_bytes : own;
        largest = largest < bytes ? bytes : largest;
    }
    return largest;
}

} // namespace pulse
