#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Pieces of scratch are rounded up: those of an operation together by no more than this.
inline constexpr std::int64_t scratch_rounding_bytes = 8 * 256;

/// What a backend takes of a device beside what a plan lays out, at most: workspaces of libraries, and copies and
/// partial sums of its own operations, one of which is at work at a time. Nothing where all is 0.
struct backend_scratch {
    std::int64_t library_bytes{}; ///< workspace of one call
    /// Weights, or gradients in their type, of a layer, and its largest tensor, that an operation makes once more.
    int copies_of_weights{};
    int copies_of_tensors{};
    /// Partial sums that depend on the operation alone.
    std::int64_t partial_bytes{};
    /// Beside that where there are frozen networks, which have a backend of their own: of its operations, without
    /// workspace.
    std::int64_t frozen_bytes{};

    /// Bytes that those need.
    [[nodiscard]] constexpr std::int64_t of_frozen_networks() const noexcept {
        return frozen_bytes == 0 ? 0 : library_bytes + frozen_bytes + scratch_rounding_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const backend_scratch&) const = default;
};

/// Bytes that the layers of a device need at most.
[[nodiscard]] constexpr std::int64_t scratch_bytes_on(const step_model& model, int device,
                                                      const backend_scratch& of) noexcept {
    if (of == backend_scratch{}) { return 0; }
    std::int64_t most = 0;
    for (int l = 0; l != model.layer_count(); ++l) {
        const int stage = model.stage_of_layer(l);
        if (model.device_of_stage(stage) != device) { continue; }
        const layer_cost& layer = model.layer(l);
        const chain_costs chain = model.costs().chain_of(l);
        std::int64_t read = l == chain.first_layer ? chain.input_bytes : model.layer(l - 1).output_bytes;
        for (const int e : model.edges_into(stage)) { read += model.edge(e).to == l ? model.edge(e).bytes : 0; }
        most = std::max(most, of.copies_of_weights * (layer.parameter_bytes + layer.frozen_parameter_bytes) +
                                  of.copies_of_tensors * std::max(read, layer.output_bytes));
    }
    return of.library_bytes + of.partial_bytes + most + scratch_rounding_bytes;
}

} // namespace pulse
