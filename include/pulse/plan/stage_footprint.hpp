#pragma once

#include <algorithm>
#include <array>
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
/// a residual are read once more, by the part that opened it, and alternate in two further slots. The deferred tensors
/// share one slot.
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
    const chain_costs chain = costs.chain_of(first);
    if (first == chain.first_layer) { made.input = take(made.saved_bytes, chain.input_bytes); }
    std::int64_t largest_deferred = 0;
    for (int l = first; l <= last; ++l) {
        const layer_cost& cost = costs.layers[static_cast<std::size_t>(l)];
        layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
        at.saved = take(made.saved_bytes, cost.saved_bytes);
        if (held_apart[static_cast<std::size_t>(l)] == 0) { at.output = take(made.saved_bytes, cost.output_bytes); }
        largest_deferred = largest_deferred < cost.deferred_bytes ? cost.deferred_bytes : largest_deferred;
        if (split_backward) {
            if (l < last) { at.output_gradient = take(made.deferred_bytes, cost.gradient_bytes()); }
            at.deferred = take(made.deferred_bytes, cost.deferred_bytes);
        }
    }
    if (!split_backward) {
        // Entry 0: gradients that only the next layer reads; entry 1: gradients of outputs that close a residual.
        std::array<std::int64_t, 2> bytes{};
        std::array<int, 2> count{};
        const auto closes = [&](int l) {
            return l != 0 && costs.layers[static_cast<std::size_t>(l) - 1].open_bytes != 0 &&
                           costs.layers[static_cast<std::size_t>(l)].open_bytes == 0
                       ? 1U
                       : 0U;
        };
        for (int l = first; l < last; ++l) {
            bytes[closes(l)] =
                std::max(bytes[closes(l)], aligned(costs.layers[static_cast<std::size_t>(l)].gradient_bytes()));
            ++count[closes(l)];
        }
        const std::array<std::int64_t, 2> begin{0, std::min(count[0], 2) * bytes[0]};
        const std::int64_t deferred = begin[1] + std::min(count[1], 2) * bytes[1];
        for (int l = last; l >= first; --l) {
            layer_offsets& at = made.layers[static_cast<std::size_t>(l - first)];
            if (l < last) { at.output_gradient = begin[closes(l)] + --count[closes(l)] % 2 * bytes[closes(l)]; }
            at.deferred = deferred;
        }
        made.deferred_bytes = deferred + aligned(largest_deferred);
    }
    return made;
}

} // namespace pulse
