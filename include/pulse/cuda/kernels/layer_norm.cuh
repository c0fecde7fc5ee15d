#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// Warps per block of the LayerNorm kernels, each of which processes one row at a time.
inline constexpr int row_warps = 4;

/// A warp's row in registers, with Reads accesses per lane; accesses beyond the row are skipped.
template <class T, int N, int Reads>
struct warp_row {
    lanes<T, N> read[Reads];

    [[nodiscard]] static __device__ int column(int r) { return (r * 32 + static_cast<int>(threadIdx.x) % 32) * N; }

    __device__ void load(const T* row, int features) {
#pragma unroll
        for (int r = 0; r < Reads; ++r) {
            if (column(r) < features) { read[r] = lanes<T, N>::load(row + column(r)); }
        }
    }
    /// Calls visit(first column, lanes) for each access.
    template <class Visit>
    __device__ void each(int features, Visit visit) const {
#pragma unroll
        for (int r = 0; r < Reads; ++r) {
            if (column(r) < features) { visit(column(r), read[r]); }
        }
    }
};

/// A warp's row of any length: each() reads it again, from the cache.
template <class T, int N>
struct long_row {
    const T* at;

    __device__ void load(const T* row, int) { at = row; }
    template <class Visit>
    __device__ void each(int features, Visit visit) const {
        for (int c = static_cast<int>(threadIdx.x) % 32 * N; c < features; c += 32 * N) {
            visit(c, lanes<T, N>::load(at + c));
        }
    }
};

/// The affine shared by all rows: gamma and beta.
template <class T>
struct row_affine {
    const T* gamma;
    const T* beta;

    /// Slope and shift of N features from c on.
    template <int N>
    __device__ void load(std::int64_t, int c, float (&slope)[N], float (&shift)[N]) const {
        load_floats(gamma + c, slope);
        load_floats(beta + c, shift);
    }
    template <int N>
    __device__ void load_slope(std::int64_t, int c, float (&slope)[N]) const {
        load_floats(gamma + c, slope);
    }
};

/// LayerNorm with one row per warp: mean, then the squares about it, then y.
template <class T, int N, class Row, class Affine>
__global__ void __launch_bounds__(row_warps * 32)
    layer_norm_kernel(int features, float epsilon, std::int64_t rows, const T* x, Affine affine, T* y,
                      float* statistics) {
    const std::int64_t row = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / 32;
    if (row >= rows) { return; }
    Row held;
    held.load(x + row * features, features);
    float sum = 0.0f;
    held.each(features, [&](int, const lanes<T, N>& read) {
#pragma unroll
        for (int i = 0; i < N; ++i) { sum += read[i]; }
    });
    const float mean = sum_of_warp(sum) / static_cast<float>(features);
    float squares = 0.0f;
    held.each(features, [&](int, const lanes<T, N>& read) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float d = read[i] - mean;
            squares = fmaf(d, d, squares);
        }
    });
    const float inverse = rsqrtf(sum_of_warp(squares) / static_cast<float>(features) + epsilon);
    held.each(features, [&](int c, const lanes<T, N>& read) {
        float slope[N];
        float shift[N];
        affine.load(row, c, slope, shift);
        float made[N];
#pragma unroll
        for (int i = 0; i < N; ++i) { made[i] = fmaf((read[i] - mean) * inverse, slope[i], shift[i]); }
        lanes<T, N>::of(made).store(y + row * features + c);
    });
    if (threadIdx.x % 32 == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = inverse;
    }
}

/// Throws input_error if features are not positive or rows are negative or too many.
inline void check_layer_norm(const layer_norm_shape& s, std::int64_t rows) {
    if (s.features < 1) {
        throw input_error("layer_norm: features must be at least 1, not " + std::to_string(s.features));
    }
    if (rows < 0 || rows >= std::int64_t{1} << 31) {
        throw input_error("layer_norm: rows must be at least 0 and below 2^31, not " + std::to_string(rows));
    }
}

/// Normalises rows of x and runs `affine` over them; `packs`: whether packs fit all operands.
template <class T, class Affine>
void normalise_rows(const queue& on, int features, double epsilon, std::int64_t rows, const T* x, const Affine& affine,
                    T* y, float* statistics, bool packs) {
    if (rows == 0) { return; }
    const auto run = [&](auto* kernel) {
        launch(kernel, dim3(static_cast<unsigned>((rows + row_warps - 1) / row_warps)), dim3(row_warps * 32), 0,
               on.stream, features, static_cast<float>(epsilon), rows, x, affine, y, statistics);
    };
    constexpr int N = pack_size<T>;
    const int reads = (features + 32 * N - 1) / (32 * N);
    if (!packs) {
        run(layer_norm_kernel<T, 1, long_row<T, 1>, Affine>);
    } else if (reads <= 2) {
        run(layer_norm_kernel<T, N, warp_row<T, N, 2>, Affine>);
    } else if (reads <= 5) {
        run(layer_norm_kernel<T, N, warp_row<T, N, 5>, Affine>);
    } else if (reads <= 10) {
        run(layer_norm_kernel<T, N, warp_row<T, N, 10>, Affine>);
    } else {
        run(layer_norm_kernel<T, N, long_row<T, N>, Affine>);
    }
}

/// y = gamma * (x - mean) / sqrt(var + epsilon) + beta over the features of every row.
///
/// x and y [rows][features], gamma and beta [features], statistics [rows][2] (mean, 1/sqrt(var + epsilon)). Must move x
/// and y once: 2 e n bytes.
template <class T>
void layer_norm(const queue& on, const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                const T* beta, T* y, float* statistics) {
    check_layer_norm(s, rows);
    normalise_rows(on, s.features, s.epsilon, rows, x, row_affine<T>{gamma, beta}, y, statistics,
                   is_packable<T>(s.features, x, gamma, beta, y));
}

} // namespace pulse::cuda
