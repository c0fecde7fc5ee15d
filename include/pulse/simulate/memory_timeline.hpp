#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pulse {

/// What the buffers of a step hold on one rank from `time_us` on, until the next sample.
struct memory_sample {
    double time_us{};
    /// Saved tensors, layer outputs, conditioning, and the gradients of these.
    std::int64_t activation_bytes{};
    /// Tensors that wait for a layer of another stage at the end of a skip edge, and their gradients.
    std::int64_t skip_bytes{};

    [[nodiscard]] constexpr bool operator==(const memory_sample&) const = default;
};

/// The memory of one rank through one step, by kind, in bytes. What does not change during a step stands beside the
/// samples; the workspace is one area that all passes share, and the backend's scratch.
struct memory_timeline {
    std::int64_t weight_bytes{};
    std::int64_t gradient_bytes{};
    std::int64_t optimizer_bytes{};
    std::int64_t workspace_bytes{};
    /// Room in which gradients of other replicas arrive.
    std::int64_t replica_bytes{};
    /// One for each instruction that begins or ends the life of a buffer, in program order; times never fall.
    std::vector<memory_sample> samples{};

    [[nodiscard]] constexpr std::int64_t fixed_bytes() const noexcept {
        return weight_bytes + gradient_bytes + optimizer_bytes + workspace_bytes + replica_bytes;
    }
    /// Most bytes of buffers alive at one time, not rounded: live_peak_bytes of `check` and of memory_layout.
    [[nodiscard]] constexpr std::int64_t live_peak_bytes() const noexcept {
        std::int64_t most = 0;
        for (const memory_sample& s : samples) { most = std::max(most, s.activation_bytes + s.skip_bytes); }
        return most;
    }
    [[nodiscard]] constexpr std::int64_t peak_bytes() const noexcept { return fixed_bytes() + live_peak_bytes(); }
    [[nodiscard]] constexpr bool operator==(const memory_timeline&) const = default;
};

} // namespace pulse
