#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Bytes that cross between devices for one microbatch, by kind and direction.
struct traffic {
    /// Main activations, open residuals and the conditioning relayed with them.
    std::int64_t boundary_forward{};
    std::int64_t boundary_backward{};
    /// Skip tensors, and their gradients on the way back.
    std::int64_t skip_forward{};
    std::int64_t skip_backward{};

    [[nodiscard]] constexpr std::int64_t boundary() const noexcept { return boundary_forward + boundary_backward; }
    [[nodiscard]] constexpr std::int64_t skip() const noexcept { return skip_forward + skip_backward; }
    [[nodiscard]] constexpr std::int64_t total() const noexcept { return boundary() + skip(); }
    [[nodiscard]] constexpr bool operator==(const traffic&) const = default;
};

/// Bytes that a cut after `layer` sends if the next stage is on another device: the main activation, the residual that
/// is open there, and the conditioning.
[[nodiscard]] constexpr std::int64_t boundary_bytes(const cost_table& costs, int layer) noexcept {
    return costs.layers[static_cast<std::size_t>(layer)].sent_bytes() + costs.chain_of(layer).conditioning_bytes;
}

/// Bytes that come back there: the gradients of these, where they have any.
[[nodiscard]] constexpr std::int64_t boundary_gradient_bytes(const cost_table& costs, int layer) noexcept {
    return costs.layers[static_cast<std::size_t>(layer)].returned_bytes() +
           costs.chain_of(layer).conditioning_gradient_bytes();
}

/// Bytes that cross between devices for one microbatch of a training step under `cut`.
///
/// Every boundary between stages on different devices sends its activation, the residual that is open there and the
/// conditioning forward, and their gradients back, where they have any. A skip tensor with both ends on one device
/// stays there and costs nothing. Any other is sent once if `routing` is direct, and once per device change from its
/// source stage to its target stage if relayed; its gradient returns the same way. Edges count separately: no tensor is
/// shared between edges of one source, or with the main activation. Requires a partition that covers the layers of
/// `costs`.
[[nodiscard]] constexpr traffic traffic_of(const partition& cut, const cost_table& costs, skip_routing routing) {
    traffic sum{};
    std::vector<int> changes(cut.stages.size(), 0); // device changes from stage 0 to each stage
    for (std::size_t s = 1; s < cut.stages.size(); ++s) {
        changes[s] = changes[s - 1];
        const int first_layer = cut.stages[s].first_layer;
        if (costs.chain_of(first_layer).first_layer == first_layer) { continue; } // another backbone begins
        if (cut.stages[s - 1].device != cut.stages[s].device) {
            sum.boundary_forward += boundary_bytes(costs, cut.stages[s - 1].last_layer);
            sum.boundary_backward += boundary_gradient_bytes(costs, cut.stages[s - 1].last_layer);
            ++changes[s];
        }
    }
    for (const skip_cost& edge : costs.skips) {
        const auto from = static_cast<std::size_t>(stage_of(cut.stages, edge.from));
        const auto to = static_cast<std::size_t>(stage_of(cut.stages, edge.to));
        if (cut.stages[from].device == cut.stages[to].device) { continue; }
        const int hops = routing == skip_routing::direct ? 1 : changes[to] - changes[from];
        sum.skip_forward += edge.bytes * hops;
        sum.skip_backward += costs.gradient_bytes(edge) * hops;
    }
    return sum;
}

} // namespace pulse
