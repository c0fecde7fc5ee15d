#pragma once

#include <cstddef>
#include <span>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/memory.cuh>

namespace pulse_bench {

/// Message tensors on the device of a rank, for transport_path.
struct device_tensors {
    cudaStream_t stream{}; ///< in which the rank computes

    static void store(std::byte* to, std::span<const std::byte> bytes) {
        pulse::cuda::upload(bytes.data(), to, bytes.size());
    }
    static void load(const std::byte* from, std::span<std::byte> bytes) {
        pulse::cuda::download(from, bytes.data(), bytes.size());
    }
    void settle() const { pulse::cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }
};

} // namespace pulse_bench
