#pragma once

#include <cstddef>
#include <cstdint>

#include <pulse/core/separate.hpp>
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

/// What a cut after `layer` sends when the next stage is on another device: the main activation, the residual that is
/// open there, and the conditioning.
[[nodiscard]] constexpr std::int64_t boundary_bytes(const cost_table& costs, int layer) noexcept {
    return costs.layers[static_cast<std::size_t>(layer)].sent_bytes() + costs.chain_of(layer).conditioning_bytes;
}

/// What comes back there: the gradients of these, but for what needs none.
[[nodiscard]] constexpr std::int64_t boundary_gradient_bytes(const cost_table& costs, int layer) noexcept {
    return costs.layers[static_cast<std::size_t>(layer)].returned_bytes() +
           costs.chain_of(layer).conditioning_gradient_bytes();
}

/// Bytes that cross between devices for one microbatch of a training step under `cut`.
///
/// Every boundary between stages of different devices sends its activation, the residual that is open there and the
/// conditioning forward, and gradients of the same sizes back, but for what needs none. A skip tensor whose ends are on
/// one device waits there and costs nothing. Any other is sent once when `routing` is direct, and once per device
/// change from its source stage to its target stage when relayed; its gradient goes the same way back. Each edge
/// counts: no tensor is shared between edges of one source, or with the main activation. Requires a partition that
/// covers the layers of `costs`.
[[nodiscard]] PULSE_CONSTEXPR traffic traffic_of(const partition& cut, const cost_table& costs, skip_routing routing);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/partition/traffic.ipp> // IWYU pragma: keep
#endif
