#pragma once

#include <cuda_runtime.h>

#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

/// Sum of every thread's value, in an order that depends on the block's size only; only thread 0 gets it. Blocks must
/// have whole warps, and every thread must call it. May be called again after a barrier.
template <class T>
__device__ T block_sum(T value) {
    __shared__ T warp_sums[32];
    for (int offset = 16; offset != 0; offset /= 2) { value += __shfl_down_sync(0xffffffffU, value, offset); }
    const unsigned warp = threadIdx.x / 32;
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) { warp_sums[warp] = value; }
    __syncthreads();
    if (warp == 0) {
        value = lane < blockDim.x / 32 ? warp_sums[lane] : T{};
        for (int offset = 16; offset != 0; offset /= 2) { value += __shfl_down_sync(0xffffffffU, value, offset); }
    }
    return value;
}

/// out[row] = sum of parts [first[row], first[row + 1]), in the order of a fixed tree; one block per row.
template <class Index>
__global__ void sum_parts_kernel(const double* parts, const Index* first, double* out) {
    double sum = 0;
    for (Index i = first[blockIdx.x] + static_cast<Index>(threadIdx.x); i < first[blockIdx.x + 1];
         i += static_cast<Index>(blockDim.x)) {
        sum += parts[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { out[blockIdx.x] = sum; }
}

/// *out = sum of n parts, in the order of a fixed tree; one block.
template <class Index>
__global__ void sum_all_parts_kernel(const double* parts, Index n, double* out) {
    double sum = 0;
    for (Index i = static_cast<Index>(threadIdx.x); i < n; i += static_cast<Index>(blockDim.x)) { sum += parts[i]; }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { *out = sum; }
}

} // namespace pulse::cuda
