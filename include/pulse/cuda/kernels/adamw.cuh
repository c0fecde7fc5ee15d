#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/runtime/optimizer_rule.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/host_updates.hpp>

namespace pulse::cuda {

/// One AdamW step of one weight, as train::adamw_step. Every sum is written as an explicit fused operation, so that
/// both kernels give the same bits.
__device__ inline void adamw_value(const train::adamw_factors<float>& f, float gradient, float& weight, float& first,
                                   float& second) {
    const float slope = f.gradient_scale * gradient;
    first = fmaf(f.beta1, first, f.one_minus_beta1 * slope);
    second = fmaf(f.beta2, second, f.one_minus_beta2 * (slope * slope));
    const float root = fmaf(sqrtf(second), f.inverse_root_correction2, f.epsilon);
    weight = fmaf(f.keep, weight, -(f.step_size * first / root));
}

/// One value of each array.
template <class T>
__device__ void adamw_one(const train::adamw_factors<float>& f, float follow, const train::update_arrays<T>& a,
                          std::int64_t i) {
    float weight = a.weights[i];
    adamw_value(f, a.gradients[i], weight, a.first_moment[i], a.second_moment[i]);
    a.weights[i] = weight;
    if (a.average != nullptr) { a.average[i] = fmaf(follow, weight - a.average[i], a.average[i]); }
    if (a.compute != nullptr) { a.compute[i] = from_float<T>(weight); }
}

/// Four neighbours at once; every array aligned to 16 bytes.
template <class T>
__device__ void adamw_four(const train::adamw_factors<float>& f, float follow, const train::update_arrays<T>& a,
                           std::int64_t i) {
    const pack<float> gradient = load_pack_streaming(a.gradients + i);
    pack<float> mean = load_pack_streaming(a.first_moment + i);
    pack<float> square = load_pack_streaming(a.second_moment + i);
    pack<float> weight = load_pack_streaming(a.weights + i);
    for (int k = 0; k != 4; ++k) { adamw_value(f, gradient[k], weight[k], mean[k], square[k]); }
    store_pack_streaming(a.first_moment + i, mean);
    store_pack_streaming(a.second_moment + i, square);
    store_pack_streaming(a.weights + i, weight);
    if (a.average != nullptr) {
        pack<float> average = load_pack_streaming(a.average + i);
        for (int k = 0; k != 4; ++k) { average[k] = fmaf(follow, weight[k] - average[k], average[k]); }
        store_pack_streaming(a.average + i, average);
    }
    if (a.compute != nullptr) {
        struct alignas(4 * sizeof(T)) four {
            T values[4];
        } copy;
        for (int k = 0; k != 4; ++k) { copy.values[k] = from_float<T>(weight[k]); }
        *reinterpret_cast<four*>(a.compute + i) = copy;
    }
}

inline constexpr int adamw_threads = 256;

/// Resident blocks of adamw_kernel per multiprocessor: with more, its registers spill on sm_100.
inline constexpr int adamw_resident_blocks = 4;

/// Blocks of adamw_threads for `threads` threads, at most `resident` per multiprocessor.
[[nodiscard]] constexpr unsigned adamw_grid(std::int64_t threads, int resident, int multiprocessors) noexcept {
    const std::int64_t blocks = (threads + adamw_threads - 1) / adamw_threads;
    const std::int64_t most = std::int64_t{resident} * multiprocessors;
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

template <class T, bool Packs>
__global__ void __launch_bounds__(adamw_threads, adamw_resident_blocks)
    adamw_kernel(train::adamw_factors<float> factors, float follow, train::update_arrays<T> arrays) {
    const auto n = static_cast<std::int64_t>(arrays.size);
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    const std::int64_t packs = Packs ? n / 4 : 0;
    for (std::int64_t i = thread; i < packs; i += threads) { adamw_four(factors, follow, arrays, 4 * i); }
    for (std::int64_t i = 4 * packs + thread; i < n; i += threads) { adamw_one(factors, follow, arrays, i); }
}

/// One AdamW step on master weights, with plain moments (Loshchilov and Hutter 2019, algorithm 2), with clipping by
/// `now.gradient_scale`, the moving average and the compute copy. One launch for all tensors, because a rank's values
/// are in one array. A weight's result does not depend on its position.
///
/// Must move 28 bytes per weight, 8 more with an average and sizeof(T) more with a compute copy.
template <class T>
void adamw(const queue& on, const optimizer_update& now, const train::update_arrays<T>& arrays) {
    if (arrays.size == 0) { return; }
    const bool packs = is_packable<float>(0, arrays.gradients, arrays.weights, arrays.first_moment,
                                          arrays.second_moment, arrays.average) &&
                       is_pack_aligned(arrays.compute);
    launch(packs ? adamw_kernel<T, true> : adamw_kernel<T, false>,
           adamw_grid(static_cast<std::int64_t>(arrays.size / 4 + 1), adamw_resident_blocks, on.multiprocessors),
           adamw_threads, 0, on.stream, train::factors_of<float>(now.constants, now.step, now.gradient_scale),
           static_cast<float>(1.0 - now.average_decay), arrays);
}

} // namespace pulse::cuda
