#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pulse/partition/partition.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// What a device holds under a memory limit, per layer: bytes = state_factor x parameter bytes + frozen parameter bytes
/// + in_flight x (saved bytes + output bytes).
///
/// A model for choosing cuts, additive over layers; `check` computes the exact peak of a plan.
struct memory_model {
    /// 0 means no limit.
    std::int64_t limit_bytes{0};
    /// Copies of a parameter on its device: weights, gradients and the two moments of AdamW make 4.
    std::int64_t state_factor{4};
    /// Microbatches whose activations a device holds at once.
    std::int64_t in_flight{1};
    /// One limit per device instead of limit_bytes, 0 for a device without one; empty: limit_bytes applies to all.
    std::vector<std::int64_t> device_limit_bytes{};

    [[nodiscard]] constexpr std::int64_t bytes_of(const layer_cost& layer) const noexcept {
        return state_factor * layer.parameter_bytes + layer.frozen_parameter_bytes +
               in_flight * (layer.saved_bytes + layer.output_bytes);
    }
    /// Bytes that `device` may hold; 0 means no limit.
    [[nodiscard]] constexpr std::int64_t limit_of(int device) const noexcept {
        return device_limit_bytes.empty() ? limit_bytes : device_limit_bytes[static_cast<std::size_t>(device)];
    }
};

/// What a skip-aware partition may trade for bytes, and the limits of its search.
struct skip_aware_options {
    /// A cut whose greatest device load is at most (1 + slack) times the least one may be taken if it sends fewer
    /// bytes.
    double slack{0.0};
    memory_model memory{};
    /// Closed regions that the search may hold; a guard for graphs with few skips and many waves.
    std::size_t region_limit{2'000'000};
    /// Relative speed of each device: a device's load is the time of its layers divided by it. Empty: all are alike.
    std::vector<double> device_speed{};
    /// Regions and boxes of regions that the search may examine, counted on every visit, before it throws error; a core
    /// examines about 5 x 10^7 per second.
    std::int64_t work_limit{2'000'000'000};
};

/// Loads with a smaller relative difference are equal: sums of measured times are not exact.
inline constexpr double load_tolerance = 1e-9;

} // namespace pulse
