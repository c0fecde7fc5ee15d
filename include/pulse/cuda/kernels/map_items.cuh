#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <pulse/core/error.hpp>
#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

/// Items that a thread reads before it writes the first: 64 to 128 bytes.
template <class F>
inline constexpr int items_in_flight = sizeof(decltype(std::declval<const F&>().read(0u))) > 32 ? 2 : 4;

/// f.write(i, f.read(i)) for every i below n; a thread's items are gridDim.x blocks apart.
template <class F>
__global__ void __launch_bounds__(256) map_items_kernel(F f, std::uint32_t n) {
    constexpr int count = items_in_flight<F>;
    const std::uint32_t step = gridDim.x * blockDim.x;
    const std::uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    decltype(f.read(0u)) items[count];
#pragma unroll
    for (int u = 0; u < count; ++u) {
        if (first + u * step < n) { items[u] = f.read(first + u * step); }
    }
#pragma unroll
    for (int u = 0; u < count; ++u) {
        if (first + u * step < n) { f.write(first + u * step, items[u]); }
    }
}

/// Blocks of map_items: enough to fill the device before any thread gets a second item.
[[nodiscard]] constexpr std::int64_t map_items_blocks(std::int64_t n, int in_flight, int multiprocessors) noexcept {
    const std::int64_t alone = (n + 255) / 256;
    return std::min(alone,
                    std::max<std::int64_t>(std::int64_t{8} * multiprocessors, (alone + in_flight - 1) / in_flight));
}

/// Runs f over items 0 to n - 1: f.write(i, ...) writes the result of f.read(i); an item may overwrite what only that
/// item reads. Throws input_error naming `operation` for more than 2^30 items.
template <class F>
void map_items(const queue& on, const char* operation, std::int64_t n, const F& f) {
    if (n < 0 || n > std::int64_t{1} << 30) {
        throw input_error(std::string(operation) + ": accesses must be from 0 to 2^30, not " + std::to_string(n));
    }
    if (n == 0) { return; }
    const std::int64_t blocks = map_items_blocks(n, items_in_flight<F>, on.multiprocessors);
    launch(map_items_kernel<F>, dim3(static_cast<unsigned>(blocks)), dim3(256), 0, on.stream, f,
           static_cast<std::uint32_t>(n));
}

} // namespace pulse::cuda
