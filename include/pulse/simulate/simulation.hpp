#pragma once

#include <cstdint>
#include <vector>

#include <pulse/plan/instruction.hpp>
#include <pulse/simulate/memory_timeline.hpp>

namespace pulse {

/// One compute pass of a rank, microseconds from the start of the step.
struct simulated_pass {
    int instruction{}; ///< position in the rank's program
    double start_us{};
    double end_us{};
    double waited_us{}; ///< before start_us: for receives that it reads

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

/// What a link carried in one step, in bytes, and how long it was occupied by that.
struct link_traffic {
    std::int64_t boundary_forward_bytes{}; ///< activations, open residuals and conditioning
    std::int64_t boundary_backward_bytes{};
    std::int64_t skip_forward_bytes{}; ///< direct, or relayed with a boundary
    std::int64_t skip_backward_bytes{};
    std::int64_t gradient_bytes{}; ///< to data-parallel replicas
    double occupied_us{};

    [[nodiscard]] constexpr std::int64_t total_bytes() const noexcept {
        return boundary_forward_bytes + boundary_backward_bytes + skip_forward_bytes + skip_backward_bytes +
               gradient_bytes;
    }
    [[nodiscard]] constexpr bool operator==(const link_traffic&) const = default;
};

/// What one step of one pipeline replica does, according to the clock of the simulator.
struct simulation {
    /// Per rank, in program order.
    std::vector<std::vector<simulated_pass>> ranks{};
    /// By sender, then receiver, then time.
    std::vector<simulated_transfer> transfers{};
    /// When the last rank ends.
    double step_us{};
    /// Idle time of all ranks over P times step_us; a recompute is not idle.
    double bubble_ratio{};
    /// What crosses devices: activations, open residuals, conditioning and their gradients; skip tensors and theirs.
    std::int64_t boundary_bytes{};
    std::int64_t skip_bytes{};
    /// Per rank: most bytes of buffers alive at one time, without workspace.
    std::vector<std::int64_t> live_peak_bytes{};
    /// Per rank.
    std::vector<memory_timeline> memory{};
    /// Row-major P x P, [from * P + to]: what went from one rank to another, over whichever links.
    std::vector<link_traffic> pairs{};
    /// By number: what went over each link that simulation_options::routes names; a message counts on all that it
    /// takes.
    std::vector<link_traffic> shared_links{};
    /// Per rank: what it sends to its data-parallel replicas, gradients (and new weights) in shares rounded up.
    std::vector<std::int64_t> gradient_bytes{};
    /// What all ranks of all replicas send to other replicas, exactly.
    std::int64_t replica_bytes{};

    [[nodiscard]] constexpr bool operator==(const simulation&) const = default;
};

} // namespace pulse
