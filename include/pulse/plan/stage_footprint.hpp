#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Every buffer and every tensor inside a block starts at a multiple of this many bytes.
inline constexpr std::int64_t buffer_alignment = 64;

/// `bytes` rounded up to buffer_alignment.
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t bytes) noexcept {
    return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

/// Where one layer's tensors lie inside its stage's blocks, in bytes; -1 means not there.
struct layer_offsets {
    std::int64_t saved{-1};           ///< saved block: what F leaves for B and W
    std::int64_t output{-1};          ///< saved block: the output, unless it is an `activation` buffer of its own
    std::int64_t output_gradient{-1}; ///< deferred block: none for the stage's last layer (activation_gradient)
    std::int64_t deferred{-1};        ///< deferred block: what B leaves for W

    [[nodiscard]] constexpr bool operator==(const layer_offsets&) const = default;
};

/// The inside of a stage's `saved` and `deferred` buffers.
struct stage_footprint {
    int first_layer{};
    /// Saved block: the model's input; -1 in every stage but the first of a backbone.
    std::int64_t input{-1};
    /// Entry i belongs to layer first_layer + i.
    std::vector<layer_offsets> layers{};
    std::int64_t saved_bytes{};
    std::int64_t deferred_bytes{};

    [[nodiscard]] constexpr const layer_offsets& of_layer(int layer) const noexcept {
        return layers[static_cast<std::size_t>(layer - first_layer)];
    }
    [[nodiscard]] constexpr bool operator==(const stage_footprint&) const = default;
};

/// Lays out layers first to last; `held_apart[l]` says that the output of layer l is a buffer of its own.
///
/// Without a split backward the deferred block lives only while B runs from the last layer to the first: a layer reads
/// one output gradient and writes the one before it, so two alternating slots suffice. Gradients of outputs that close
/// a residual are read again by the part that opened it, and alternate in two more. The deferred tensors share one
/// slot.
[[nodiscard]] PULSE_CONSTEXPR stage_footprint lay_out_stage(const cost_table& costs, int first, int last,
                                                            const std::vector<char>& held_apart, bool split_backward);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/plan/stage_footprint.ipp> // IWYU pragma: keep
#endif
