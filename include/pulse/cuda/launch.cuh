#pragma once

#include <cstddef>
#include <source_location>
#include <string>

#include <cuda_runtime.h>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/launch_limits.cuh>
#include <pulse/cuda/queue.cuh>

namespace pulse::cuda {

/// A block's dynamic shared memory, of the size given at launch, aligned to 128 bytes.
template <class T>
__device__ T* shared_memory() {
    extern __shared__ __align__(128) unsigned char pulse_shared_memory[];
    return reinterpret_cast<T*>(pulse_shared_memory);
}

/// Launches the kernel on the stream, with `shared_bytes` of dynamic shared memory per block (shared_memory). Throws
/// cuda_error naming kernel and sizes if it cannot start, and input_error as require_grid does.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                  "pulse::cuda: a launch needs as many arguments as the kernel has parameters");
    const auto* address = reinterpret_cast<const void*>(kernel);
    const auto where = std::source_location::current();
    require_grid(grid);
    allow_shared_bytes(address, shared_bytes, where);
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    if (status == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    const char* name = nullptr;
    if (cudaFuncGetName(&name, address) != cudaSuccess || name == nullptr) { name = "a kernel"; }
    const auto text = [](dim3 size) {
        return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
    };
    throw cuda_error(status, std::string("launch of ") + name,
                     "; grid " + text(grid) + ", block " + text(block) + ", " + std::to_string(shared_bytes) +
                         " bytes of shared memory",
                     where);
}

} // namespace pulse::cuda
