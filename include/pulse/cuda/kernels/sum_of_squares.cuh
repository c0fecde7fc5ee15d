#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/double_sum.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/plan/cuda_memory.hpp>

namespace pulse::cuda {

/// A run of one layer's values; a table of these is on the device.
struct value_chunk {
    std::int64_t first{};
    std::int32_t size{};
};

/// Values that one block of threads sums.
inline constexpr std::int64_t chunk_values = cuda_tables.chunk_elements;

/// Appends a layer's chunks, which depend on its size alone.
inline void append_chunks(std::vector<value_chunk>& chunks, std::int64_t first, std::int64_t size) {
    for (std::int64_t done = 0; done < size; done += chunk_values) {
        const std::int64_t rest = size - done;
        chunks.push_back({first + done, static_cast<std::int32_t>(rest < chunk_values ? rest : chunk_values)});
    }
}

/// Most blocks over which the sum of the squares of a tensor's update is spread.
inline constexpr int update_parts = cuda_tables.factored / static_cast<int>(sizeof(double));

static_assert(cuda_tables.fixed == sizeof(std::int32_t) && cuda_tables.layer == sizeof(std::int32_t) + sizeof(double) &&
                  cuda_tables.chunk == sizeof(value_chunk) + sizeof(double),
              "pulse: cuda_tables must match the tables that sums of squares read");

inline constexpr int sum_of_squares_threads = 256;

template <class T>
__global__ void __launch_bounds__(sum_of_squares_threads)
    chunk_squares_kernel(const T* values, const value_chunk* chunks, double* parts) {
    const value_chunk chunk = chunks[blockIdx.x];
    const T* from = values + chunk.first;
    // The assignment of values to threads does not depend on the chunk's address, so the sum has the same bits.
    const bool packs = is_pack_aligned(from);
    double sum = 0;
    for (int i = static_cast<int>(threadIdx.x) * pack_size<T>; i < chunk.size;
         i += sum_of_squares_threads * pack_size<T>) {
        if (packs && i + pack_size<T> <= chunk.size) {
            const pack<T> four = load_pack(from + i);
            for (int k = 0; k != pack_size<T>; ++k) {
                const auto x = static_cast<double>(four.get(k));
                sum = fma(x, x, sum);
            }
        } else {
            for (int k = 0; k != pack_size<T> && i + k < chunk.size; ++k) {
                const auto x = static_cast<double>(to_float(from[i + k]));
                sum = fma(x, x, sum);
            }
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { parts[blockIdx.x] = sum; }
}

/// parts[c] = sum of the squares of the values of chunk c, of `chunks`, in double; not finite if a value is not.
///
/// Moves at least sizeof(T) bytes per value.
template <class T>
void chunk_squares(const queue& on, const T* values, std::int64_t chunks, const value_chunk* table, double* parts) {
    if (chunks == 0) { return; }
    launch(chunk_squares_kernel<T>, static_cast<unsigned>(chunks), sum_of_squares_threads, 0, on.stream, values, table,
           parts);
}

/// squares[l] = sum of parts [first_chunk[l], first_chunk[l + 1]), for `layers` layers, in an order that depends on the
/// layer's size alone.
inline void sum_chunks(const queue& on, const double* parts, int layers, const std::int32_t* first_chunk,
                       double* squares) {
    if (layers == 0) { return; }
    launch(sum_parts_kernel<std::int32_t>, static_cast<unsigned>(layers), sum_of_squares_threads, 0, on.stream, parts,
           first_chunk, squares);
}

} // namespace pulse::cuda
