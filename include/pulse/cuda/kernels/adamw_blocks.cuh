#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/random.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/plan/optimizer_form.hpp>
#include <pulse/train/adamw.hpp>
#include <pulse/train/dynamic_code.hpp>
#include <pulse/train/host_updates.hpp>
#include <pulse/train/random.hpp>

namespace pulse::cuda {

/// The code of a scaled value, as train::encode_block finds it.
__device__ inline int code_of(const float* values, float value) {
    int at = 0;
    for (int step = 128; step != 0; step /= 2) { at += values[at + step] <= value ? step : 0; }
    if (at < 255 && value - values[at] > values[at + 1] - value) { ++at; }
    return at == 0 && value > 0.0f ? 1 : at;
}

/// Stochastic rounding of a float to bfloat16, down or up in magnitude and unbiased, with 16 random bits. Values that
/// are not finite stay as they are, so that the next step finds them.
__device__ inline float round_by_chance(float value, std::uint32_t bits) {
    if (!isfinite(value)) { return value; }
    return __uint_as_float((__float_as_uint(value) + bits) & 0xFFFF0000u);
}

/// The 16 random bits of a weight in a step: half-word number mod 8 of counter number / 8.
__device__ inline std::uint32_t rounding_bits(std::uint64_t number, const random_key& key) {
    const uint4 words = philox4x32(number / 8, key);
    const unsigned half = static_cast<unsigned>(number % 8);
    const std::uint32_t word = half < 4 ? (half < 2 ? words.x : words.y) : (half < 6 ? words.z : words.w);
    return half % 2 == 0 ? word & 0xFFFFu : word >> 16u;
}

/// Weight i in the highest precision that is kept of it.
template <class T>
__device__ float kept_weight(const train::update_arrays<T>& a, std::int64_t i) {
    if (a.weights != nullptr) { return a.weights[i]; }
    return to_float(a.compute[i]) + (a.left_over != nullptr ? to_float(a.left_over[i]) : 0.0f);
}

/// Stores the new weight i and its average.
template <class T>
__device__ void keep_weight(const train::update_arrays<T>& a, std::int64_t i, float weight, float follow,
                            const random_key& key) {
    if (a.average != nullptr) { a.average[i] = fmaf(follow, weight - a.average[i], a.average[i]); }
    if (a.weights != nullptr) {
        a.weights[i] = weight;
        if (a.compute != nullptr) { a.compute[i] = from_float<T>(weight); }
    } else if (a.left_over != nullptr) {
        const T value = from_float<T>(weight);
        const float rest = weight - to_float(value);
        a.compute[i] = value;
        a.left_over[i] = from_float<T>(__uint_as_float(__float_as_uint(rest) & 0xFFFF0000u));
    } else {
        const std::uint32_t bits = rounding_bits(a.number + static_cast<std::uint64_t>(i), key);
        a.compute[i] = from_float<T>(round_by_chance(weight, bits));
    }
}

/// The key of a step's rounding noise.
[[nodiscard]] inline random_key rounding_key(const optimizer_update& now) {
    return {now.seed,
            static_cast<std::uint64_t>(train::random_stream::rounding) | (static_cast<std::uint64_t>(now.step) << 16U)};
}

/// Shared memory of farthest(), and the numbers that codes stand for.
struct moment_shared {
    float first_codes[moment_block];
    float second_codes[moment_block];
    float values[moment_block];
    int at[moment_block];
};

/// The value farthest from 0 among those of a block's threads; the first one in a tie.
__device__ inline float farthest(float value, moment_shared& shared) {
    const int thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    shared.values[thread] = value;
    shared.at[thread] = thread;
    __syncthreads();
    for (int half = moment_block / 2; half != 0; half /= 2) {
        if (thread < half) {
            const int mine = shared.at[thread];
            const int other = shared.at[thread + half];
            const float here = fabsf(shared.values[mine]);
            const float there = fabsf(shared.values[other]);
            if (there > here || (there == here && other < mine)) { shared.at[thread] = other; }
        }
        __syncthreads();
    }
    return shared.values[shared.at[0]];
}

/// Resident blocks of adamw_blocks_kernel per multiprocessor.
inline constexpr int adamw_blocks_resident_blocks = 6;

/// A thread block processes one moment_block after the other, with one thread per weight.
template <class T>
__global__ void __launch_bounds__(moment_block, adamw_blocks_resident_blocks)
    adamw_blocks_kernel(train::adamw_factors<float> factors, float follow, train::update_arrays<T> arrays,
                        train::code_map first_codes, train::code_map second_codes, random_key key) {
    __shared__ moment_shared shared;
    const train::update_arrays<T>& a = arrays;
    const int thread = static_cast<int>(threadIdx.x);
    const bool coded = a.first_codes != nullptr;
    shared.first_codes[thread] = first_codes.values[thread];
    shared.second_codes[thread] = second_codes.values[thread];
    __syncthreads();
    const auto n = static_cast<std::int64_t>(a.size);
    const std::int64_t blocks = (n + moment_block - 1) / moment_block;
    for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
        const std::int64_t i = block * moment_block + thread;
        const bool mine = i < n;
        float first = 0;
        float second = 0;
        if (mine) {
            first = coded ? shared.first_codes[a.first_codes[i]] * a.first_scales[block] : a.first_moment[i];
            second = coded ? shared.second_codes[a.second_codes[i]] * a.second_scales[block] : a.second_moment[i];
            float weight = kept_weight(a, i);
            adamw_value(factors, a.gradients[i], weight, first, second);
            keep_weight(a, i, weight, follow, key);
            if (!coded) {
                a.first_moment[i] = first;
                a.second_moment[i] = second;
            }
        }
        if (!coded) { continue; }
        const float first_scale = farthest(first, shared);
        const float second_scale = farthest(second, shared);
        if (mine) {
            a.first_codes[i] =
                static_cast<std::uint8_t>(code_of(shared.first_codes, first_scale == 0 ? 0.0f : first / first_scale));
            a.second_codes[i] = static_cast<std::uint8_t>(
                code_of(shared.second_codes, second_scale == 0 ? 0.0f : second / second_scale));
        }
        if (thread == 0) {
            a.first_scales[block] = first_scale;
            a.second_scales[block] = second_scale;
        }
    }
}

/// One AdamW step on weights whose moments are coded or that have no master weights, as train::host_updates does it.
///
/// Moves, per weight, 4 bytes of gradient, 4 of codes or 16 of moments, 8 of an average, 8 of a master weight, and
/// twice its value and rounding remainder.
template <class T>
void adamw_blocks(const queue& on, const optimizer_update& now, const train::update_arrays<T>& arrays) {
    if (arrays.size == 0) { return; }
    static_assert(moment_block == adamw_threads);
    launch(adamw_blocks_kernel<T>,
           adamw_grid(static_cast<std::int64_t>(arrays.size), adamw_blocks_resident_blocks, on.multiprocessors),
           moment_block, 0, on.stream, train::factors_of<float>(now.constants, now.step, now.gradient_scale),
           static_cast<float>(1.0 - now.average_decay), arrays, train::first_codes, train::second_codes,
           rounding_key(now));
}

} // namespace pulse::cuda
