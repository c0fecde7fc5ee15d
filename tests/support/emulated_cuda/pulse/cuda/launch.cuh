#pragma once

/// Shadows the header of the same name where CUDA is emulated: same functions, but kernels run on the host.

#include <cstddef>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

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

/// Launches a kernel of any type: `run` calls it with the arguments whose bytes are `values`.
inline void launch_with(const void* kernel, void (*run)(const void* kernel, const void* values), dim3 grid, dim3 block,
                        std::size_t shared_bytes, cudaStream_t stream, std::span<const std::byte> values) {
    require_grid(grid);
    allow_shared_bytes(kernel, shared_bytes, std::source_location::current());
    const cudaError_t status = emulated_cuda::enqueue_kernel(
        grid, block, shared_bytes, stream,
        [kernel, run, kept = std::vector<std::byte>(values.begin(), values.end())] { run(kernel, kept.data()); },
        {.kernel = kernel, .arguments = values});
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

/// Instantiated hundreds of times, so it contains only what depends on the kernel's types.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments), "as many arguments as the kernel has parameters");
    using function = void (*)(Parameters...);
    const auto call = [... values = static_cast<Parameters>(arguments)](function called) { called(values...); };
    using values_type = std::remove_const_t<decltype(call)>;
    static_assert(std::is_trivially_copyable_v<values_type>, "CUDA copies arguments byte by byte");
    static_assert(alignof(values_type) <= alignof(std::max_align_t));
    launch_with(reinterpret_cast<const void*>(kernel),
                [](const void* called, const void* values) {
                    (*static_cast<const values_type*>(values))(reinterpret_cast<function>(const_cast<void*>(called)));
                },
                grid, block, shared_bytes, stream, {reinterpret_cast<const std::byte*>(&call), sizeof call});
}

} // namespace pulse::cuda
