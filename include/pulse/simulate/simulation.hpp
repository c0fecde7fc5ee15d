#pragma once

#include <cstdint>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/simulate/memory_timeline.hpp>

namespace pulse {

/// One compute pass of a rank, in microseconds from the start of the step.
struct simulated_pass {
    int instruction{}; ///< position in the rank's program
    double start_us{};
    double end_us{};

    [[nodiscard]] constexpr bool operator==(const simulated_pass&) const = default;
};

/// One message on its way from rank `from` to rank `to`.
struct simulated_transfer {
    message_id message{};
    int from{};
    int to{};
    double start_us{};   ///< both sides have posted it and the link is free
    double left_us{};    ///< the sender's buffers and the link are free
    double arrived_us{}; ///< the receiver may read
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};

    [[nodiscard]] constexpr bool operator==(const simulated_transfer&) const = default;
};

/// Simulated timeline of one step of one pipeline replica.
struct simulation {
    /// Per rank, in program order.
    std::vector<std::vector<simulated_pass>> ranks{};
    /// By sender, then receiver, then time.
    std::vector<simulated_transfer> transfers{};
    /// End of the last rank.
    double step_us{};
    /// Idle time of all ranks / (P x step_us); a recompute counts as busy.
    double bubble_ratio{};
    /// Bytes between devices: activations, open residuals, conditioning and their gradients; skip tensors and theirs.
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    /// Per rank.
    std::vector<memory_timeline> memory{};
    /// Per rank: bytes sent to its data-parallel replicas, gradients (and new weights) in shares that are rounded up.
    std::vector<std::int64_t> gradient_bytes{};
    /// Bytes that all ranks of all replicas send to other replicas, exact.
    std::int64_t replica_bytes{};

    [[nodiscard]] constexpr bool operator==(const simulation&) const = default;
};

} // namespace pulse
