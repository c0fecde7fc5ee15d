#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/label.hpp>

namespace pulse {

/// A layer as a value, or one part of a layer that may be cut. Elements are per sample. FLOPs count 2 per
/// multiply-accumulate of convolutions, linear layers and attention, per sample and forward pass.
struct layer_node {
    label name{};
    std::int64_t input_elements{};
    std::int64_t output_elements{};
    std::int64_t parameter_elements{};
    /// Saved by forward for the backward, besides the layer's input, skip input and output; without the statistics.
    std::int64_t saved_elements{};
    /// Left by backward_input for backward_weight, besides the gradient of the output.
    std::int64_t deferred_elements{};
    std::int64_t workspace_elements{};
    double forward_flops{};
    /// Statistics of norms and attentions that forward saves for the backward: accumulators, in full precision whatever
    /// the scalar type.
    std::int64_t statistics_elements{};
    /// Weights that are not trained; not in parameter_elements.
    std::int64_t frozen_parameter_elements{};
    /// Elements at the end of the output that have no gradient; all of them if the layer runs forward only.
    std::int64_t frozen_output_elements{};
    /// FLOPs of forward_flops with frozen weights, which W does not repeat, and those that B does not repeat either.
    double frozen_flops{};
    double forward_only_flops{};
    /// A residual that is open after this part of a layer: a cut there sends it with the output, and its gradient back
    /// with the output's.
    std::int64_t open_elements{};
    /// Floats of the parameters' second moments when Adafactor factors them.
    std::int64_t factored_elements{};

    /// Bytes of a microbatch's statistics, rounded up to a multiple of 64; the saved tensors follow them. A statistic
    /// takes 4 bytes, or scalar_bytes if that is more.
    [[nodiscard]] constexpr std::int64_t statistics_bytes(int batch, int scalar_bytes) const noexcept {
        const std::int64_t bytes = statistics_elements * batch * (scalar_bytes < 4 ? 4 : scalar_bytes);
        return (bytes + 63) / 64 * 64;
    }
    /// Bytes of a microbatch's statistics and saved tensors.
    [[nodiscard]] constexpr std::int64_t saved_bytes(int batch, int scalar_bytes) const noexcept {
        return statistics_bytes(batch, scalar_bytes) + saved_elements * batch * scalar_bytes;
    }

    [[nodiscard]] constexpr bool operator==(const layer_node&) const = default;
};

/// A skip edge as a value: positions in graph_view::layers of its source's last part and its target's first part, and
/// the elements per sample that it carries.
struct skip_link {
    int from{};
    int to{};
    std::int64_t elements{};

    [[nodiscard]] constexpr bool operator==(const skip_link&) const = default;
};

/// What the planner sees of a model, wherever it came from.
struct graph_view {
    label model{};
    std::span<const layer_node> layers{};
    std::span<const skip_link> skips{};
    /// Elements per sample of the conditioning that every boundary relays.
    std::int64_t conditioning_elements{};
    /// Those at the end that nothing trained produces: they need no gradient.
    std::int64_t frozen_conditioning_elements{};
};

/// A model's graph as a constexpr value: `graph_of<M>()` returns one.
template <std::size_t Layers, std::size_t Skips>
struct static_graph {
    label model{};
    std::array<layer_node, Layers> layers{};
    std::array<skip_link, Skips> skips{};
    std::int64_t conditioning_elements{};
    std::int64_t frozen_conditioning_elements{};

    [[nodiscard]] constexpr graph_view view() const noexcept {
        return {model, layers, skips, conditioning_elements, frozen_conditioning_elements};
    }
};

} // namespace pulse
