#pragma once

#include <cstdint>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/partition/partition.hpp>
#include <pulse/plan/parameter_memory.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// Bytes that a device needs under any order of passes, by purpose.
struct least_memory {
    int device{};
    std::int64_t parameter_bytes{};  ///< all copies, of the replica with the largest share if state is sharded
    std::int64_t replica_bytes{};    ///< room for gradients of other replicas
    std::int64_t workspace_bytes{};  ///< with the backend's scratch
    std::int64_t microbatch_bytes{}; ///< one microbatch alone: activations, skips and gradients at their peak

    [[nodiscard]] constexpr std::int64_t total_bytes() const noexcept {
        return parameter_bytes + replica_bytes + workspace_bytes + microbatch_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const least_memory&) const = default;
};

/// What each device needs at least for a cut, from the exact buffers of one microbatch that runs alone: no order of any
/// number of microbatches has a smaller layout, and one after the other they need hardly more, except when gradients
/// are released.
///
/// Throws input_error if the cut does not fit the cost table.
[[nodiscard]] PULSE_CONSTEXPR std::vector<least_memory> least_memory_of(const cost_table& costs, const partition& cut,
                                                                        bool split_backward, skip_routing routing,
                                                                        const stage_recomputation& recompute,
                                                                        const parameter_memory& kept, int replicas = 1,
                                                                        bool gradient_release = false);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/tune/least_memory.ipp> // IWYU pragma: keep
#endif
