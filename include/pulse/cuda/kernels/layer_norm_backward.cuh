#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pulse/cuda/kernels/column_sums.cuh>
#include <pulse/cuda/kernels/layer_norm.cuh>

namespace pulse::cuda {

template <class T>
struct layer_norm_gradient {
    int features{};
    std::int64_t rows{};
    const T* x{};
    const T* gamma{};
    const float* statistics{};
    const T* dy{};
    T* dx{};
    const T* before{}; ///< what the gradient is added to: the residual or dx itself; null: none
    float* affine{};   ///< [blocks][2][features]: sums of dy * xhat, then of dy

    [[nodiscard]] const __device__ T* before_at(std::int64_t row, int c) const {
        return before == nullptr ? nullptr : before + row * features + c;
    }
};

/// (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat)) / sigma of one access, written to dx.
template <class T, int N, class Gamma>
__device__ void write_layer_norm_gradient(const lanes<T, N>& x, const lanes<T, N>& dy, const Gamma& gamma, float mean,
                                          float inverse, float offset, float product, T* dx, const T* added_to) {
    float made[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const float normal = (x[i] - mean) * inverse;
        made[i] = (fmaf(gamma[i], dy[i], -offset) - normal * product) * inverse;
    }
    if (added_to != nullptr) {
        const auto before = lanes<T, N>::load(added_to);
#pragma unroll
        for (int i = 0; i < N; ++i) { made[i] += before[i]; }
    }
    lanes<T, N>::of(made).store(dx);
}

/// Adds one access of a row to sums of dy and of dy * xhat.
template <class T, int N>
__device__ void sum_row(const layer_norm_gradient<T>& d, std::int64_t row, int column, float (&sum_dy)[N],
                        float (&sum_product)[N]) {
    const auto x = lanes<T, N>::load(d.x + row * d.features + column);
    const auto dy = lanes<T, N>::load(d.dy + row * d.features + column);
    const float mean = d.statistics[2 * row];
    const float inverse = d.statistics[2 * row + 1];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        sum_dy[i] += dy[i];
        sum_product[i] = fmaf(dy[i], (x[i] - mean) * inverse, sum_product[i]);
    }
}

/// Keeps rows and a warp's sums over all its rows in registers: x and dy are read once.
template <class T, int N, int Reads>
__global__ void __launch_bounds__(row_warps * 32, 2) layer_norm_gradient_kernel(layer_norm_gradient<T> d) {
    using held_row = warp_row<T, N, Reads>;
    float sum_dy[Reads][N]{};
    float sum_product[Reads][N]{};
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (std::int64_t row = std::int64_t{blockIdx.x} * row_warps + warp; row < d.rows;
         row += std::int64_t{gridDim.x} * row_warps) {
        const float mean = d.statistics[2 * row];
        const float inverse = d.statistics[2 * row + 1];
        held_row x;
        held_row dy;
        x.load(d.x + row * d.features, d.features);
        dy.load(d.dy + row * d.features, d.features);
        float sum = 0.0f;
        float product = 0.0f;
#pragma unroll
        for (int r = 0; r < Reads; ++r) {
            if (held_row::column(r) < d.features) {
                const auto gamma = lanes<T, N>::load(d.gamma + held_row::column(r));
#pragma unroll
                for (int i = 0; i < N; ++i) {
                    const float normal = (x.read[r][i] - mean) * inverse;
                    const float g = dy.read[r][i];
                    sum_dy[r][i] += g;
                    sum_product[r][i] = fmaf(g, normal, sum_product[r][i]);
                    sum = fmaf(gamma[i], g, sum);
                    product = fmaf(gamma[i] * g, normal, product);
                }
            }
        }
        const float offset = sum_of_warp(sum) / static_cast<float>(d.features);
        product = sum_of_warp(product) / static_cast<float>(d.features);
#pragma unroll
        for (int r = 0; r < Reads; ++r) {
            if (const int c = held_row::column(r); c < d.features) {
                write_layer_norm_gradient(x.read[r], dy.read[r], lanes<T, N>::load(d.gamma + c), mean, inverse, offset,
                                          product, d.dx + row * d.features + c, d.before_at(row, c));
            }
        }
    }
    auto* const shared = shared_memory<float>(); // [warps][2][features]
#pragma unroll
    for (int r = 0; r < Reads; ++r) {
        if (const int c = held_row::column(r); c < d.features) {
            float* const to = shared + std::int64_t{warp} * 2 * d.features + c;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                to[i] = sum_product[r][i];
                to[d.features + i] = sum_dy[r][i];
            }
        }
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < 2 * d.features; c += row_warps * 32) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < row_warps; ++w) { total += shared[w * 2 * d.features + c]; }
        d.affine[std::int64_t{blockIdx.x} * 2 * d.features + c] = total;
    }
}

/// Writes dx of a row of any length, with its slope from `affine`: every sweep reads the row again, from the cache.
template <class T, int N, class Affine>
__device__ void write_long_row_gradient(const layer_norm_gradient<T>& d, std::int64_t row, const Affine& affine) {
    const int first = static_cast<int>(threadIdx.x) % 32 * N;
    const float mean = d.statistics[2 * row];
    const float inverse = d.statistics[2 * row + 1];
    float slope[N];
    float sum = 0.0f;
    float product = 0.0f;
    for (int c = first; c < d.features; c += 32 * N) {
        const auto x = lanes<T, N>::load(d.x + row * d.features + c);
        const auto dy = lanes<T, N>::load(d.dy + row * d.features + c);
        affine.load_slope(row, c, slope);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            sum = fmaf(slope[i], dy[i], sum);
            product = fmaf(slope[i] * dy[i], (x[i] - mean) * inverse, product);
        }
    }
    const float offset = sum_of_warp(sum) / static_cast<float>(d.features);
    product = sum_of_warp(product) / static_cast<float>(d.features);
    for (int c = first; c < d.features; c += 32 * N) {
        affine.load_slope(row, c, slope);
        write_layer_norm_gradient(lanes<T, N>::load(d.x + row * d.features + c),
                                  lanes<T, N>::load(d.dy + row * d.features + c), slope, mean, inverse, offset, product,
                                  d.dx + row * d.features + c, d.before_at(row, c));
    }
}
template <class T, int N, class Affine>
__global__ void __launch_bounds__(row_warps * 32)
    long_layer_norm_gradient_kernel(layer_norm_gradient<T> d, std::int64_t rows, Affine affine) {
    const std::int64_t row = std::int64_t{blockIdx.x} * row_warps + threadIdx.x / 32;
    if (row < rows) { write_long_row_gradient<T, N>(d, row, affine); }
}

/// Does the same as layer_norm_gradient_kernel, in the same order, for rows whose sums would need so many registers
/// that few blocks fit: blocks with blockIdx.y 0 write dx, those with r + 1 sum access r of every lane.
template <class T, int N>
__global__ void __launch_bounds__(row_warps * 32, 8) split_layer_norm_gradient_kernel(layer_norm_gradient<T> d) {
    constexpr int width = 32 * N;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32 * N;
    const int first = (static_cast<int>(blockIdx.y) - 1) * width;
    float sum_dy[N]{};
    float sum_product[N]{};
    for (std::int64_t row = std::int64_t{blockIdx.x} * row_warps + warp; row < d.rows;
         row += std::int64_t{gridDim.x} * row_warps) {
        if (blockIdx.y == 0) {
            write_long_row_gradient<T, N>(d, row, row_affine<T>{d.gamma, nullptr});
        } else if (first + lane < d.features) {
            sum_row(d, row, first + lane, sum_dy, sum_product);
        }
    }
    if (blockIdx.y == 0) { return; }
    auto* const shared = shared_memory<float>(); // [warps][2][width]
#pragma unroll
    for (int i = 0; i < N; ++i) {
        shared[(2 * warp) * width + lane + i] = sum_product[i];
        shared[(2 * warp + 1) * width + lane + i] = sum_dy[i];
    }
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < 2 * width; c += row_warps * 32) {
        const int column = first + c % width;
        if (column >= d.features) { continue; }
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < row_warps; ++w) { total += shared[w * 2 * width + c]; }
        d.affine[(std::int64_t{blockIdx.x} * 2 + c / width) * d.features + column] = total;
    }
}

/// Sums of dy * xhat and of dy over the rows of each block, for rows of any length; blockIdx.x counts slabs, then
/// splits, blockIdx.y sets of d.rows rows each: affine [sets][splits][2][features].
template <class T, int N>
__global__ void __launch_bounds__(256, 2) layer_norm_affine_kernel(column_tiling t, layer_norm_gradient<T> d) {
    const thread_rows block{t.columns, t.rows};
    auto* const totals = shared_memory<float>();
    float* const buffer = totals + t.columns * N;
    const int split = static_cast<int>(blockIdx.x) / t.slabs;
    const int first = static_cast<int>(blockIdx.x) % t.slabs * t.columns * N;
    const int column = first + static_cast<int>(threadIdx.x) % t.columns * N;
    const int thread_row = static_cast<int>(threadIdx.x) / t.columns;
    const std::int64_t last = (split + 1) * t.chunk < d.rows ? (split + 1) * t.chunk : d.rows;
    float sum_dy[N]{};
    float sum_product[N]{};
    if (thread_row < t.rows && column < d.features) {
        const std::int64_t set = blockIdx.y * d.rows;
#pragma unroll 2
        for (std::int64_t row = set + split * t.chunk + thread_row; row < set + last; row += t.rows) {
            sum_row(d, row, column, sum_dy, sum_product);
        }
    }
    float* const to = d.affine + (std::int64_t{blockIdx.y} * t.splits + split) * 2 * d.features + first;
    const int thread = static_cast<int>(threadIdx.x);
    const int threads = static_cast<int>(blockDim.x);
    block.sum(sum_product, buffer, totals);
    for (int i = thread; i < t.columns * N && first + i < d.features; i += threads) { to[i] = totals[i]; }
    block.sum(sum_dy, buffer, totals);
    for (int i = thread; i < t.columns * N && first + i < d.features; i += threads) { to[d.features + i] = totals[i]; }
}

/// Most rows of partial sums in layer_norm_backward, on any device.
[[nodiscard]] constexpr std::int64_t layer_norm_most_partials(std::int64_t rows) noexcept {
    return std::min<std::int64_t>(512, std::max<std::int64_t>(1, (rows + 7) / 8));
}

/// Bytes of scratch of layer_norm_backward, on any device.
[[nodiscard]] inline std::size_t layer_norm_backward_scratch_bytes(const layer_norm_shape& s, std::int64_t rows) {
    const std::int64_t partials = layer_norm_most_partials(rows);
    return (sizeof(float) * static_cast<std::size_t>(partials * 2 * s.features) + 255) / 256 * 256 +
           column_sums_bytes(1, partials, 2 * s.features);
}

/// Gradients of layer_norm: dx = (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat)) / sigma, dgamma = (or +=) sum
/// of dy xhat, dbeta = (or +=) sum of dy, both in the same way.
///
/// x, dy and dx [rows][features], statistics [rows][2]; dx is written or added to, or written plus the residual if that
/// is not null; it must not overlap x and dy. Must move x, dy and dx once: 3 e n bytes (4 e n with a sum); rows beyond
/// 96 accesses of 16 bytes are read twice. Scratch: layer_norm_backward_scratch_bytes.
template <class T>
void layer_norm_backward(const queue& on, const layer_norm_shape& s, std::int64_t rows, const T* x, const T* gamma,
                         const float* statistics, const T* dy, T* dx, gradient_place<float> dgamma,
                         gradient_place<float> dbeta, into how, const T* residual = nullptr) {
    check_layer_norm(s, rows);
    auto* const affine = reinterpret_cast<float*>(on.scratch);
    const T* const before = residual != nullptr || how == into::write ? residual : dx;
    const layer_norm_gradient<T> d{s.features, rows, x, gamma, statistics, dy, dx, before, affine};
    constexpr int N = pack_size<T>;
    const bool packs = is_packable<T>(s.features, x, gamma, dy, dx, before);
    const int reads = (s.features + 32 * N - 1) / (32 * N);
    const auto blocks_of = [&](std::int64_t rows_of_block) {
        return static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block);
    };
    std::int64_t partials = 0;
    if (rows == 0) {
        // Without rows, all sums are 0.
    } else if (packs && reads <= 5) {
        partials = std::min({layer_norm_most_partials(rows), std::int64_t{2} * on.multiprocessors,
                             std::int64_t{blocks_of(2 * row_warps)}});
        const auto run = [&](auto* kernel, int parts, int width) {
            launch(kernel, dim3(static_cast<unsigned>(partials), static_cast<unsigned>(parts)), dim3(row_warps * 32),
                   sizeof(float) * row_warps * 2 * width, on.stream, d);
        };
        reads <= 2   ? run(layer_norm_gradient_kernel<T, N, 2>, 1, s.features)
        : reads == 3 ? run(layer_norm_gradient_kernel<T, N, 3>, 1, s.features)
                     : run(split_layer_norm_gradient_kernel<T, N>, dgamma.wanted() ? 1 + reads : 1, 32 * N);
    } else {
        auto t = tile_columns(1, rows, s.features, packs ? N : 1, on.multiprocessors);
        partials = t.splits;
        with_lanes<T>(packs, [&]<int M>() {
            launch(long_layer_norm_gradient_kernel<T, M, row_affine<T>>, dim3(blocks_of(row_warps)),
                   dim3(row_warps * 32), 0, on.stream, d, rows, row_affine<T>{gamma, nullptr});
            launch(layer_norm_affine_kernel<T, M>, dim3(static_cast<unsigned>(t.slabs * t.splits)),
                   dim3(static_cast<unsigned>(t.threads())),
                   sizeof(float) * M * (static_cast<std::size_t>(t.columns) * (t.rows + 1)), on.stream, t, d);
        });
    }
    const std::size_t used = sizeof(float) * static_cast<std::size_t>(partials * 2 * s.features);
    auto* const more = reinterpret_cast<float*>(on.scratch + (used + 255) / 256 * 256);
    if (!dgamma.wanted()) { return; }
    column_sums<float, float>(on, 1, partials, 2 * s.features, affine, {dgamma.to, dbeta.to, s.features}, dgamma.how,
                              more);
}

} // namespace pulse::cuda
