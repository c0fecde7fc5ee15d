#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/error.cuh>

namespace pulse::cuda {

/// Dynamic shared memory available to every kernel; more must be allowed per kernel.
inline constexpr std::size_t plain_shared_bytes = 48 * 1024;

/// Most blocks of a grid in y, and in z.
inline constexpr unsigned most_grid_rows = 65535;

/// Most dynamic shared memory that a kernel may be allowed on the current device.
[[nodiscard]] inline std::size_t most_dynamic_shared_bytes() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    int bytes = 0;
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "cudaDeviceGetAttribute");
    return static_cast<std::size_t>(bytes);
}

/// Allows `kernel` to use `bytes` of dynamic shared memory on the current device, unless it already may; throws
/// cuda_error if the device has less.
inline void allow_shared_bytes(const void* kernel, std::size_t bytes, std::source_location where) {
    if (bytes <= plain_shared_bytes) { return; }
    static std::mutex guard;
    static std::map<std::pair<const void*, int>, std::size_t> allowed;
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice", where);
    const std::scoped_lock lock(guard);
    std::size_t& most = allowed[{kernel, device}];
    if (bytes <= most) { return; }
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
          "cudaFuncSetAttribute", where);
    most = bytes;
}

/// Throws input_error for a grid too large for any device in y or z, which count samples and heads.
inline void require_grid(dim3 grid) {
    if (grid.y <= most_grid_rows && grid.z <= most_grid_rows) { return; }
    throw input_error("pulse: an operation may have at most " + std::to_string(most_grid_rows) +
                      " samples or heads at once, not " + std::to_string(grid.y < grid.z ? grid.z : grid.y));
}

} // namespace pulse::cuda
