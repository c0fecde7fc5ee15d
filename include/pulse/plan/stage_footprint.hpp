#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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
    /// Saved block: the model's input; -1 in every stage but the first.
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
/// one output gradient and writes the one before it, so two alternating slots do, and the deferred tensors share one.
[[nodiscard]] constexpr stage_footprint lay_out_stage(const cost_table& costs, int first, int last,
                                                      const std::vector<char>& held_apart, bool split_backward) {
    stage_footprint made{};
    made.first_layer = first;
    made.layers.resize(static_cast<std::size_t>(last - first + 1), layer_offsets{});
    const auto take = [](std::int64_t& end, std::int64_t bytes) {
        const std::int64_t at = end;
        end += aligned(bytes);
        return at;
    };
    if (first == 0) { made.input = take(made.saved_bytes, costs.input_bytes); }
    std::int64_t largest_gradient = 0;
    std::int64_t largest_deferred = 0;
    for (int l = first; l <= last; ++l) {
        const layer_cost& cost = costs.layers[static_cast<std::size_t>(l)];
        layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
        at.saved = take(made.saved_bytes, cost.saved_bytes);
        if (held_apart[static_cast<std::size_t>(l)] == 0) { at.output = take(made.saved_bytes, cost.output_bytes); }
        if (l < last) { largest_gradient = largest_gradient < cost.output_bytes ? cost.output_bytes : largest_gradient; }
        largest_deferred = largest_deferred < cost.deferred_bytes ? cost.deferred_bytes : largest_deferred;
        if (split_backward) {
            if (l < last) { at.output_gradient = take(made.deferred_bytes, cost.output_bytes); }
            at.deferred = take(made.deferred_bytes, cost.deferred_bytes);
        }
    }
    if (!split_backward) {
        // One inner gradient needs one slot, more need two.
        const std::int64_t gradient_slots = last - first < 2 ? last - first : 2;
        for (int l = first; l <= last; ++l) {
            layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
            if (l < last) { at.output_gradient = (last - 1 - l) % 2 * aligned(largest_gradient); }
            at.deferred = gradient_slots * aligned(largest_gradient);
        }
        made.deferred_bytes = gradient_slots * aligned(largest_gradient) + aligned(largest_deferred);
    }
    return made;
}

} // namespace pulse
