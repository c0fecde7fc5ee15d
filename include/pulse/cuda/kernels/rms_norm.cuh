#pragma once

#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/layer_norm.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// RMSNorm with one row per warp, which reads it twice, the second time from the cache.
template <class T, int N>
__global__ void __launch_bounds__(row_warps * 32)
    rms_norm_kernel(int features, float epsilon, std::int64_t rows, const T* x, const T* gamma, T* y) {
    const std::int64_t row = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / 32;
    if (row >= rows) { return; }
    const long_row<T, N> held{x + row * features};
    float squares = 0.0f;
    held.each(features, [&](int, const lanes<T, N>& read) {
#pragma unroll
        for (int i = 0; i < N; ++i) { squares = fmaf(read[i], read[i], squares); }
    });
    const float inverse = rsqrtf(sum_of_warp(squares) / static_cast<float>(features) + epsilon);
    held.each(features, [&](int c, const lanes<T, N>& read) {
        float made[N];
        load_floats(gamma + c, made);
#pragma unroll
        for (int i = 0; i < N; ++i) { made[i] *= read[i] * inverse; }
        lanes<T, N>::of(made).store(y + row * features + c);
    });
}

/// y = gamma x / sqrt(mean(x^2) + epsilon) over the features of every row; x and y [rows][features], gamma [features].
/// Must move 2 e n bytes. Throws input_error as check_layer_norm does.
template <class T>
void rms_norm(const queue& on, const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma, T* y) {
    check_layer_norm(s, rows);
    if (rows == 0) { return; }
    const bool packs = is_packable<T>(s.features, x, gamma, y);
    launch(packs ? rms_norm_kernel<T, pack_size<T>> : rms_norm_kernel<T, 1>,
           dim3(static_cast<unsigned>((rows + row_warps - 1) / row_warps)), dim3(row_warps * 32), 0, on.stream,
           s.features, static_cast<float>(s.epsilon), rows, x, gamma, y);
}

} // namespace pulse::cuda
