#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/adamw.cuh>
#include <pulse/cuda/kernels/adamw_blocks.cuh>
#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/double_sum.cuh>
#include <pulse/cuda/kernels/random.cuh>
#include <pulse/cuda/kernels/sum_of_squares.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/train/adafactor.hpp>
#include <pulse/train/host_updates.hpp>

namespace pulse::cuda {

inline constexpr int adafactor_threads = 256;

/// Neighbouring columns that a block sums, with a 32nd of the rows per thread: their part of a row is 32 bytes.
inline constexpr int adafactor_columns = 8;

/// A tensor as a matrix; a vector has 0 rows.
struct factored_shape {
    std::int64_t size{};
    std::int64_t rows{};
    divider columns{};
};

/// mean = decay mean + (1 - decay) (square + epsilon).
__device__ inline void follow_mean(const train::adafactor_factors& f, float& mean, float square) {
    mean = fmaf(f.decay, mean, f.one_minus_decay * (square + f.epsilon));
}

/// Means of the squares of a matrix, with gradients of type A: one block per row, then one per adafactor_columns
/// columns.
template <class A>
__global__ void __launch_bounds__(adafactor_threads)
    adafactor_means_kernel(train::adafactor_factors f, factored_shape s, const A* gradients, float* means) {
    __shared__ float sums[adafactor_threads];
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t columns = s.columns.divisor;
    const std::int64_t row = blockIdx.x;
    float sum = 0.0f;
    if (row < s.rows) {
        for (std::int64_t j = thread; j < columns; j += adafactor_threads) {
            const float slope = f.gradient_scale * gradients[row * columns + j];
            sum = fmaf(slope, slope, sum);
        }
        sum = block_sum(sum);
        if (thread == 0) { follow_mean(f, means[row], sum / static_cast<float>(columns)); }
        return;
    }
    const std::int64_t column = (row - s.rows) * adafactor_columns + thread % adafactor_columns;
    if (column < columns) {
        for (std::int64_t i = thread / adafactor_columns; i < s.rows; i += adafactor_threads / adafactor_columns) {
            const float slope = f.gradient_scale * gradients[i * columns + column];
            sum = fmaf(slope, slope, sum);
        }
    }
    sums[thread] = sum;
    for (int half = adafactor_threads / 2; half >= adafactor_columns; half /= 2) {
        __syncthreads();
        if (thread < half) { sums[thread] += sums[thread + half]; }
    }
    if (thread < adafactor_columns && column < columns) {
        follow_mean(f, means[s.rows + column], sums[thread] / static_cast<float>(s.rows));
    }
}

/// block_sum with the result in every thread; both may be called again right after it.
template <class T>
__device__ T block_sum_for_all(T value) {
    __shared__ T sum;
    value = block_sum(value);
    if (threadIdx.x == 0) { sum = value; }
    __syncthreads();
    return sum;
}

/// Root of the mean of the rows' means, the same bits in every block; 1 for a vector.
__device__ inline float root_of_rows(const factored_shape& s, const float* means) {
    if (s.rows == 0) { return 1.0f; }
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < s.rows; i += adafactor_threads) { sum += static_cast<double>(means[i]); }
    return static_cast<float>(sqrt(block_sum_for_all(sum) / static_cast<double>(s.rows)));
}

/// The update of weight i before clipping.
__device__ inline float adafactor_update(const train::adafactor_factors& f, const factored_shape& s, float gradient,
                                         const float* second, float root, std::int64_t i) {
    const float slope = f.gradient_scale * gradient;
    if (s.rows == 0) { return slope / sqrtf(second[i]); }
    const divided at = divide(static_cast<std::uint32_t>(i), s.columns);
    // Separate roots: the product of two tiny means would underflow to 0.
    return slope * (root / sqrtf(second[at.quotient])) / sqrtf(second[s.rows + at.remainder]);
}

/// parts[block] = sum of the squares of the block's updates; for a vector, updates the second moments first.
template <class A>
__global__ void __launch_bounds__(adafactor_threads)
    adafactor_squares_kernel(train::adafactor_factors f, factored_shape s, const A* gradients, float* second,
                             double* parts) {
    const float root = root_of_rows(s, second);
    const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * adafactor_threads;
    double sum = 0;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * adafactor_threads + threadIdx.x; i < s.size;
         i += threads) {
        if (s.rows == 0) {
            const float slope = f.gradient_scale * gradients[i];
            follow_mean(f, second[i], slope * slope);
        }
        const auto moved = static_cast<double>(adafactor_update(f, s, gradients[i], second, root, i));
        sum = fma(moved, moved, sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) { parts[blockIdx.x] = sum; }
}

template <class T>
__global__ void __launch_bounds__(adafactor_threads)
    adafactor_kernel(train::adafactor_factors f, float follow, factored_shape s, train::update_arrays<T> arrays,
                     const double* parts, int part_count, random_key key) {
    const train::update_arrays<T>& a = arrays;
    const float root = root_of_rows(s, a.second_moment);
    const double squares = block_sum_for_all(static_cast<int>(threadIdx.x) < part_count ? parts[threadIdx.x] : 0.0);
    const double excess = sqrt(squares / static_cast<double>(s.size)) / f.clip;
    const auto step_size = static_cast<float>(f.learning_rate / (excess > 1.0 ? excess : 1.0));
    const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * adafactor_threads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * adafactor_threads + threadIdx.x; i < s.size;
         i += threads) {
        const float moved = adafactor_update(f, s, a.gradients[i], a.second_moment, root, i);
        keep_weight(a, i, fmaf(f.keep, kept_weight(a, i), -(step_size * moved)), follow, key);
    }
}

/// One Adafactor step on a tensor of less than 2^31 elements, as train::adafactor_step, with averages and weights as in
/// adamw_blocks. The order of sums depends on the shape alone. `parts` has room for update_parts. Throws input_error
/// for more elements.
///
/// Reads the gradient of each weight four times; otherwise moves what adamw_blocks does, without its moments.
template <class T>
void adafactor(const queue& on, const optimizer_update& now, const train::update_arrays<T>& arrays, double* parts) {
    if (arrays.size == 0) { return; }
    static_assert(update_parts <= adafactor_threads, "pulse::cuda: each part of an update needs a thread of its own");
    const auto size = static_cast<std::int64_t>(arrays.size);
    if (size >= std::int64_t{1} << 31) {
        throw input_error("adafactor: a tensor must have fewer than 2^31 elements, not " + std::to_string(size));
    }
    const auto rows = static_cast<std::int64_t>(arrays.rows);
    const std::int64_t columns = rows == 0 ? size : size / rows;
    const factored_shape shape{size, rows, divider{columns}};
    const train::adafactor_factors factors = train::adafactor_factors_of(now);
    if (rows != 0) {
        const std::int64_t blocks = rows + (columns + adafactor_columns - 1) / adafactor_columns;
        launch(adafactor_means_kernel<float>, static_cast<unsigned>(blocks), adafactor_threads, 0, on.stream, factors,
               shape, arrays.gradients, arrays.second_moment);
    }
    // A number that depends on the size alone, so that every device gives the same bits.
    const std::int64_t spread = (size + 8 * adafactor_threads - 1) / (8 * adafactor_threads);
    const int count = spread < update_parts ? static_cast<int>(spread) : update_parts;
    launch(adafactor_squares_kernel<float>, static_cast<unsigned>(count), adafactor_threads, 0, on.stream, factors,
           shape, arrays.gradients, arrays.second_moment, parts);
    launch(adafactor_kernel<T>, adamw_grid(size, adamw_resident_blocks, on.multiprocessors), adafactor_threads, 0,
           on.stream, factors, static_cast<float>(1.0 - now.average_decay), shape, arrays, parts, count,
           rounding_key(now));
}

} // namespace pulse::cuda
