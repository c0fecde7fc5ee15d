#pragma once

#include <cstddef>

#include <cuda_runtime.h>

namespace pulse::cuda {

/// Where an operation runs: it puts its kernels into `stream` and returns; it allocates nothing and waits for nothing.
struct queue {
    cudaStream_t stream{};
    int multiprocessors{}; ///< of the device, for grids that fill it once
    std::byte* scratch{};  ///< as many bytes as the operation's `..._scratch_bytes` says, aligned to 256; else null
};

} // namespace pulse::cuda
