#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace pulse::cuda {

/// Where an operation runs: it enqueues its kernels on `stream` and returns, without allocating or waiting.
struct queue {
    cudaStream_t stream{};
    int multiprocessors{}; ///< of the device, for grids that fill it once
    std::byte* scratch{};  ///< of the operation's `..._scratch_bytes` bytes, aligned to 256; null if it needs none
};

} // namespace pulse::cuda
