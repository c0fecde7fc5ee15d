#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What a device holds under a memory limit, per layer: bytes = state_factor x parameter bytes
/// + in_flight x (saved bytes + output bytes).
///
/// A model for choosing cuts, additive in the layers; the exact peak of a plan is what `check` computes.
struct memory_model {
    /// 0 means no limit.
    std::int64_t limit_bytes{0};
    /// Copies of a parameter on its device: weights, gradients and the two moments of AdamW make 4.
    std::int64_t state_factor{4};
    /// Microbatches whose activations a device holds at once.
    std::int64_t in_flight{1};
    /// One limit per device in place of limit_bytes, 0 for a device without one; empty means that limit_bytes holds
    /// for all.
    std::vector<std::int64_t> device_limit_bytes{};

    [[nodiscard]] constexpr std::int64_t bytes_of(const layer_cost& layer) const noexcept {
        return state_factor * layer.parameter_bytes + layer.frozen_parameter_bytes +
               in_flight * (layer.saved_bytes + layer.output_bytes);
    }
    /// What `device` may hold; 0 means no limit.
    [[nodiscard]] constexpr std::int64_t limit_of(int device) const noexcept {
        return device_limit_bytes.empty() ? limit_bytes : device_limit_bytes[static_cast<std::size_t>(device)];
    }
};

/// What a skip-aware partition may trade, and what it may use.
struct skip_aware_options {
    /// A cut whose greatest device load is at most (1 + slack) times the least one may be taken if it sends fewer
    /// bytes.
    double slack{0.0};
    memory_model memory{};
    /// Closed regions that the search may hold; a guard for graphs with few skips and many waves.
    std::size_t region_limit{2'000'000};
    /// Relative speed of each device: its load is the time of its layers divided by it. Empty: all are alike.
    std::vector<double> device_speed{};
    /// Regions and boxes of regions that the search may look at, each as often as it does, before it gives up with an
    /// error: a core looks at some 5 x 10^7 in a second.
    std::int64_t work_limit{2'000'000'000};
};

/// Loads that differ by less than this share are equal: sums of measured times are not exact.
inline constexpr double load_tolerance = 1e-9;

} // namespace pulse
