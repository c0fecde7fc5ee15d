#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

inline constexpr int weights_threads = 256;

[[nodiscard]] __device__ inline float greatest_of_warp(float value) {
#pragma unroll
    for (int apart = 16; apart != 0; apart /= 2) { value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, apart)); }
    return value;
}

/// Turns a row of scores into weights, softmax(scale scores), and the logarithm of its sum of exponentials. One block
/// per row, which is read three times.
template <class T>
__global__ void __launch_bounds__(weights_threads)
    attention_weights_kernel(int keys, float scale, const float* scores, T* weights, float* lse) {
    auto* const of_warps = shared_memory<float>();
    const float* const from = scores + std::int64_t{blockIdx.x} * keys;
    T* const to = weights + std::int64_t{blockIdx.x} * keys;
    const int thread = static_cast<int>(threadIdx.x);
    const auto of_block = [&](float value, auto of_warp, auto join) {
        value = of_warp(value);
        __syncthreads(); // all reads of the old values are done
        if (thread % 32 == 0) { of_warps[thread / 32] = value; }
        __syncthreads();
        float all = of_warps[0];
        for (int w = 1; w < weights_threads / 32; ++w) { all = join(all, of_warps[w]); }
        return all;
    };
    float greatest = from[0];
    for (int j = thread; j < keys; j += weights_threads) { greatest = fmaxf(greatest, from[j]); }
    greatest = of_block(
        greatest, [](float v) { return greatest_of_warp(v); }, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int j = thread; j < keys; j += weights_threads) { sum += expf(scale * (from[j] - greatest)); }
    sum = of_block(
        sum, [](float v) { return sum_of_warp(v); }, [](float a, float b) { return a + b; });
    const float inverse = 1.0f / sum;
    for (int j = thread; j < keys; j += weights_threads) {
        to[j] = from_float<T>(expf(scale * (from[j] - greatest)) * inverse);
    }
    if (thread == 0) { lse[blockIdx.x] = scale * greatest + logf(sum); }
}

} // namespace pulse::cuda
