#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pulse {

/// Bytes in the step's buffers of one rank from `time_us` until the next sample.
struct memory_sample {
    double time_us{};
    /// Saved tensors, layer outputs, conditioning, and the gradients of these.
    std::int64_t activation_bytes{};
    /// Skip tensors that wait for their target layer in another stage, and their gradients.
    std::int64_t skip_bytes{};

    [[nodiscard]] constexpr bool operator==(const memory_sample&) const = default;
};

/// Memory of one rank during one step, by kind, in bytes. The samples hold what changes during the step, the other
/// members what does not. The workspace is one area shared by all passes, plus the backend's scratch.
struct memory_timeline {
    std::int64_t weight_bytes{};
    std::int64_t gradient_bytes{};
    std::int64_t optimizer_bytes{};
    std::int64_t workspace_bytes{};
    /// Receive buffers for gradients of other replicas.
    std::int64_t replica_bytes{};
    /// One per instruction that begins or ends the life of a buffer, in program order; times never decrease.
    std::vector<memory_sample> samples{};

    [[nodiscard]] constexpr std::int64_t fixed_bytes() const noexcept {
        return weight_bytes + gradient_bytes + optimizer_bytes + workspace_bytes + replica_bytes;
    }
    /// Peak bytes of live buffers, not rounded: live_peak_bytes of `check` and of memory_layout.
    [[nodiscard]] constexpr std::int64_t live_peak_bytes() const noexcept {
        std::int64_t most = 0;
        for (const memory_sample& s : samples) { most = std::max(most, s.activation_bytes + s.skip_bytes); }
        return most;
    }
    [[nodiscard]] constexpr std::int64_t peak_bytes() const noexcept { return fixed_bytes() + live_peak_bytes(); }
    [[nodiscard]] constexpr bool operator==(const memory_timeline&) const = default;
};

} // namespace pulse
