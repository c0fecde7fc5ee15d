#pragma once

#include <algorithm>
#include <chrono>

#include <pulse/cuda/device.cuh>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/watch.hpp>

namespace pulse::nccl {

/// Options of a rank in an NCCL run.
struct transport_options {
    /// This rank's device.
    int device{};
    /// How long a transfer may take once this rank is ready for it before the run is given up; must exceed a step.
    std::chrono::milliseconds timeout{std::chrono::seconds{120}};
    /// Optional. A failed rank ends the run here. Must outlive the transport. Without it, a rank that waits in a
    /// collective learns of a failure only through `Control`.
    launch::watch* seen{};
    /// Use message memory from ncclMemAlloc, registered once with the pipeline communicators: on all ranks, or on none
    /// if one of them cannot.
    bool register_memory{true};
    /// Maximum thread blocks of one communicator's kernels; 0 leaves that to NCCL.
    int most_blocks{};
};

/// Selects the device and returns the options with a timeout that can be added to times without an overflow.
[[nodiscard]] inline transport_options on_device(transport_options options) {
    cuda::select_device(options.device);
    options.timeout = std::min(options.timeout, launch::deadline::longest);
    return options;
}

} // namespace pulse::nccl
