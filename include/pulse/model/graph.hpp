#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pulse/core/label.hpp>

namespace pulse {

/// One layer as a value. Elements are per sample; FLOPs count 2 per multiply-accumulate of convolutions, linear layers
/// and attention, per sample and forward.
struct layer_node {
    label name{};
    std::int64_t input_elements{};
    std::int64_t output_elements{};
    std::int64_t parameter_elements{};
    /// What forward leaves for backward besides the layer's input, skip input and output.
    std::int64_t saved_elements{};
    /// What backward_input leaves for backward_weight besides the gradient of the output.
    std::int64_t deferred_elements{};
    std::int64_t workspace_elements{};
    double forward_flops{};

    [[nodiscard]] constexpr bool operator==(const layer_node&) const = default;
};

/// A skip edge as a value: positions of its two layers, and the elements per sample that travel on it.
struct skip_link {
    int from{};
    int to{};
    std::int64_t elements{};
    /// The identity path around a part of one block, added where it ends: its two ends need not share a device, and a cut
    /// between them is paid for. A skip that is not residual is collocated.
    bool residual{false};

    [[nodiscard]] constexpr bool operator==(const skip_link&) const = default;
};

/// What the planner sees of a model, wherever it came from.
struct graph_view {
    label model{};
    std::span<const layer_node> layers{};
    std::span<const skip_link> skips{};
    /// Elements per sample of the conditioning that every boundary relays.
    std::int64_t conditioning_elements{};
};

/// A model's graph as a constexpr value: `graph_of<M>()` returns one.
template <std::size_t Layers, std::size_t Skips>
struct static_graph {
    label model{};
    std::array<layer_node, Layers> layers{};
    std::array<skip_link, Skips> skips{};
    std::int64_t conditioning_elements{};

    [[nodiscard]] constexpr graph_view view() const noexcept { return {model, layers, skips, conditioning_elements}; }
};

} // namespace pulse
