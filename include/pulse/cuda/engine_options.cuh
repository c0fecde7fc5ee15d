#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/device.cuh>
#include <pulse/cuda/engine_store.cuh>
#include <pulse/cuda/event.cuh>
#include <pulse/plan/cuda_memory.hpp>

namespace pulse::cuda {

/// How engines of cuDNN and algorithms of cuBLASLt are chosen.
struct engine_options {
    /// Where choices are kept between runs; $PULSE_ENGINE_CACHE unless told otherwise.
    engine_store store = engine_store::from_environment();
    /// How many proposals are timed, 4 to 8 is a good number; up to 1, the first proposal is taken untimed. A choice by
    /// timing may differ from run to run, and results with it in their last bits, unless it is kept.
    int candidates{};
    /// Device memory that an engine may use.
    std::int64_t workspace_limit{cuda_scratch.library_bytes};

    /// Throws input_error naming the option.
    void require_valid() const {
        if (candidates < 0 || candidates > 16) {
            throw input_error("engine_options: candidates is " + std::to_string(candidates) + ", not from 0 to 16");
        }
        if (workspace_limit < 0) { throw input_error("engine_options: workspace_limit is less than 0"); }
    }
    [[nodiscard]] bool times() const noexcept { return candidates > 1; }
};

/// What a kept choice depends on besides graph and library: the kind of device.
[[nodiscard]] inline std::string device_key() {
    const device_properties found = properties_of(current_device());
    return "sm_" + std::to_string(found.sm()) + " " + std::to_string(found.multiprocessors) + " multiprocessors, " +
           found.name;
}

/// Seconds that one run takes by events, the least of three after one that does not count. Waits for the stream.
template <class Run>
[[nodiscard]] double seconds_of(cudaStream_t stream, const Run& run) {
    event begin{timing::on};
    event end{timing::on};
    run();
    double least = 1e30;
    for (int i = 0; i != 3; ++i) {
        begin.record(stream);
        run();
        end.record(stream);
        end.synchronize();
        const double taken = seconds_between(begin, end);
        least = taken < least ? taken : least;
    }
    return least;
}

/// The index of the candidate that runs fastest; run(i) puts candidate i into the stream, and may throw pulse::error,
/// which leaves it out. Returns `count` where none runs.
template <class Run>
[[nodiscard]] std::size_t fastest(cudaStream_t stream, std::size_t count, const Run& run) {
    std::size_t best = count;
    double least = 0.0;
    for (std::size_t i = 0; i != count; ++i) {
        double taken = 0.0;
        try {
            taken = seconds_of(stream, [&] { run(i); });
        } catch (const pulse::error&) { continue; }
        if (best == count || taken < least) {
            best = i;
            least = taken;
        }
    }
    return best;
}

} // namespace pulse::cuda
