#pragma once

/// Stands before the header of the same name where CUDA is emulated: same functions, kernels run on the host.

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include <emulated/device_code.hpp>
#include <emulated/runtime.hpp>

#include <pulse/cuda/error.cuh>
#include <pulse/cuda/launch_limits.cuh>
#include <pulse/cuda/queue.cuh>

namespace pulse::cuda {

template <class T>
T* shared_memory() {
    return static_cast<T*>(emulated_cuda::dynamic_shared());
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "as many arguments as the kernel has parameters");
    const auto* const address = reinterpret_cast<const void*>(kernel);
    require_grid(grid);
    allow_shared_bytes(address, shared_bytes, std::source_location::current());
    const std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
    const cudaError_t status = emulated_cuda::enqueue_kernel(
        grid, block, shared_bytes, stream, [kernel, values] { std::apply(kernel, values); },
        {.kernel = address, .arguments = std::as_bytes(std::span{&values, 1})});
    if (status == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    const auto text = [](dim3 size) {
        return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
    };
    throw cuda_error(status, "launch of a kernel",
                     "; grid " + text(grid) + ", block " + text(block) + ", " + std::to_string(shared_bytes) +
                         " bytes of shared memory",
                     std::source_location::current());
}

} // namespace pulse::cuda
