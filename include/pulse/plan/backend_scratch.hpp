#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/plan/step_model.hpp>

namespace pulse {

/// Upper bound on the bytes that rounding adds to the scratch pieces of one operation.
inline constexpr std::int64_t scratch_rounding_bytes = 8 * 256;

/// Upper bound on the device memory that a backend uses beyond what a plan lays out: library workspace, and copies and
/// partial sums of its own operations, of which one runs at a time. All zero: it uses none.
struct backend_scratch {
    std::int64_t library_bytes{}; ///< workspace of one call
    /// Copies that an operation makes of a layer's weights (or of gradients in their type), and of its largest tensor.
    int copies_of_weights{};
    int copies_of_tensors{};
    /// Partial sums whose size depends on the operation alone.
    std::int64_t partial_bytes{};
    /// Scratch of the separate backend that runs frozen networks: its own operations, without library workspace.
    std::int64_t frozen_bytes{};

    /// Bytes that the backend of the frozen networks uses, with its library workspace.
    [[nodiscard]] constexpr std::int64_t of_frozen_networks() const noexcept {
        return frozen_bytes == 0 ? 0 : library_bytes + frozen_bytes + scratch_rounding_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const backend_scratch&) const = default;
};

/// Scratch bytes that the layers of a device need at most.
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
