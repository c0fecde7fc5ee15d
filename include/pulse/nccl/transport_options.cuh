#pragma once

#include <chrono>

#include <pulse/launch/watch.hpp>

namespace pulse::nccl {

/// How a rank of an NCCL run works.
struct transport_options {
    /// This rank's device.
    int device{};
    /// How long a transfer that this rank is ready for may take before the run is given up: longer than a step.
    std::chrono::milliseconds timeout{std::chrono::seconds{120}};
    /// Where there is one: a rank that has failed ends the run here. It must outlive the transport. Without one, a rank
    /// that waits in a collective hears of a failure by the means of `Control` alone.
    launch::watch* seen{};
    /// Message memory from ncclMemAlloc, registered once with the communicators of pipeline messages: on all ranks, or,
    /// where one of them cannot, on none.
    bool register_memory{true};
    /// Thread blocks that the kernels of one communicator may take; 0: as NCCL chooses.
    int most_blocks{};
};

} // namespace pulse::nccl
