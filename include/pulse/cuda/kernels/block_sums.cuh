#pragma once

#include <cuda_runtime.h>

namespace pulse::cuda {

/// The sum over the lanes of a warp, the same bits in each; every lane must call it.
[[nodiscard]] __device__ inline float sum_of_warp(float value) {
#pragma unroll
    for (int apart = 16; apart != 0; apart /= 2) { value += __shfl_xor_sync(0xffffffffu, value, apart); }
    return value;
}

/// A block as rows of threads, where each thread owns N neighbouring columns; threads beyond `rows` only help.
struct thread_rows {
    int columns{}; ///< threads per row
    int rows{};

    /// totals[column] = sum of the threads' values over the rows, in an order that depends on the shape alone. `buffer`
    /// has rows * columns * N floats; all threads of the block must call it, and may read `totals` afterwards.
    template <int N>
    __device__ void sum(const float (&values)[N], float* buffer, float* totals) const {
        const int threads = static_cast<int>(blockDim.x);
        const int thread = static_cast<int>(threadIdx.x);
        const int plane = rows * columns;
        __syncthreads();
        if (thread < plane) {
#pragma unroll
            for (int i = 0; i < N; ++i) { buffer[i * plane + thread] = values[i]; }
        }
        __syncthreads();
        // Up to `parts` threads per column each add up every parts-th row, into the first row that they read.
        const int fit = threads / (columns * N);
        const int parts = fit < 1 ? 1 : (fit > rows ? rows : fit);
        const int wide = parts * columns;
        for (int i = thread; i < N * wide; i += threads) {
            float* const from = buffer + i / wide * plane;
            float total = 0.0f;
            for (int at = i % wide; at < plane; at += wide) { total += from[at]; }
            from[i % wide] = total;
        }
        __syncthreads();
        for (int i = thread; i < N * columns; i += threads) {
            const float* const from = buffer + i / columns * plane + i % columns;
            float total = 0.0f;
            for (int part = 0; part < parts; ++part) { total += from[part * columns]; }
            totals[i % columns * N + i / columns] = total;
        }
        __syncthreads();
    }
};

} // namespace pulse::cuda
