#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// How sums over rows are divided among blocks of up to 256 threads: each owns a slab of columns over a chunk of rows.
struct column_tiling {
    int width{};   ///< scalars per access
    int columns{}; ///< accesses side by side in a block
    int rows{};    ///< threads per column
    int slabs{};
    int splits{}; ///< chunks of the rows
    std::int64_t chunk{};

    [[nodiscard]] constexpr int threads() const noexcept { return (columns * rows + 31) / 32 * 32; }
};

/// Resident blocks of column_sums_kernel per multiprocessor.
inline constexpr int column_resident_blocks = 4;

/// Most chunks that rows are split into.
inline constexpr int most_column_splits = 256;

/// The layout for `sets` sums of `rows` rows each.
[[nodiscard]] constexpr column_tiling tile_columns(int sets, std::int64_t rows, int columns, int width,
                                                   int multiprocessors) {
    column_tiling t;
    t.width = width;
    const int accesses = columns / width;
    t.rows = 256 / std::min(accesses, 32);
    t.slabs = (accesses + 31) / 32;
    t.columns = (accesses + t.slabs - 1) / t.slabs; // about equal in every slab, so that few threads are idle
    const std::int64_t aim = std::max<std::int64_t>(1, std::int64_t{column_resident_blocks} * multiprocessors /
                                                           (std::int64_t{t.slabs} * sets));
    const std::int64_t worth = std::max<std::int64_t>(1, rows / (std::int64_t{8} * t.rows));
    const std::int64_t splits = std::min({aim, worth, std::int64_t{most_column_splits}});
    t.chunk = std::max<std::int64_t>(1, (rows + splits - 1) / splits);
    t.splits = static_cast<int>(std::max<std::int64_t>(1, (rows + t.chunk - 1) / t.chunk));
    return t;
}

/// Where sums are stored: `to`, and `rest` for columns from `border` on.
template <class R>
struct column_target {
    R* to{};
    R* rest{};
    int border{};
};

/// to[set][split][column] = (or +=) the sum of x[set][row][column] over the split's rows. blockIdx.x counts slabs, then
/// splits; blockIdx.y sets.
template <class T, int N, class R>
__global__ void __launch_bounds__(256, column_resident_blocks)
    column_sums_kernel(column_tiling t, std::int64_t rows, int columns, const T* x, column_target<R> target, into how) {
    const thread_rows block{t.columns, t.rows};
    auto* const totals = shared_memory<float>();
    float* const buffer = totals + t.columns * N;
    const int slab = static_cast<int>(blockIdx.x) % t.slabs;
    const int split = static_cast<int>(blockIdx.x) / t.slabs;
    const std::int64_t set = blockIdx.y;
    const int first = slab * t.columns * N;
    const int column = first + static_cast<int>(threadIdx.x) % t.columns * N;
    const int row = static_cast<int>(threadIdx.x) / t.columns;
    const std::int64_t last_row = (split + 1) * t.chunk < rows ? (split + 1) * t.chunk : rows;
    float sums[N]{};
    if (row < t.rows && column < columns) {
        const T* const from = x + set * rows * columns + column;
        constexpr int round = 3; // with four, the registers of only three blocks fit
        for (std::int64_t r = split * t.chunk + row; r < last_row; r += round * t.rows) {
            lanes<T, N> read[round];
#pragma unroll
            for (int u = 0; u < round; ++u) {
                if (r + u * t.rows < last_row) { read[u] = lanes<T, N>::load(from + (r + u * t.rows) * columns); }
            }
#pragma unroll
            for (int u = 0; u < round; ++u) {
                if (r + u * t.rows < last_row) {
#pragma unroll
                    for (int i = 0; i < N; ++i) { sums[i] += read[u][i]; }
                }
            }
        }
    }
    block.sum(sums, buffer, totals);
    for (int i = static_cast<int>(threadIdx.x); i < t.columns * N && first + i < columns;
         i += static_cast<int>(blockDim.x)) {
        const int c = first + i;
        R* const place = c < target.border ? target.to + (set * t.splits + split) * target.border + c
                                           : target.rest + (c - target.border);
        const float before = how == into::add ? to_float(*place) : 0.0f;
        *place = from_float<R>(before + totals[i]);
    }
}

/// Writes the sums over the rows of x [set][row][column] to their target, [set][column], or adds them; the target has a
/// second part only if there is one set. Sums in float, in an order that depends on the sizes and the device alone.
///
/// `partial` is scratch of column_sums_bytes.
template <class T, class R>
void column_sums(const queue& on, int sets, std::int64_t rows, int columns, const T* x, const column_target<R>& target,
                 into how, float* partial) {
    const bool packs = is_packable<T>(columns, x);
    const auto t = tile_columns(sets, rows, columns, packs ? pack_size<T> : 1, on.multiprocessors);
    const auto run = [&]<class S, int N, class Q>(const column_tiling& of, std::int64_t n, const S* from,
                                                  const column_target<Q>& to, into way) {
        const std::size_t shared = sizeof(float) * N * (static_cast<std::size_t>(of.columns) * (of.rows + 1));
        launch(column_sums_kernel<S, N, Q>,
               dim3(static_cast<unsigned>(of.slabs * of.splits), static_cast<unsigned>(sets)),
               dim3(static_cast<unsigned>(of.threads())), shared, on.stream, of, n, columns, from, to, way);
    };
    with_lanes<T>(packs, [&]<int N>() {
        if (t.splits == 1) {
            run.template operator()<T, N, R>(t, rows, x, target, how);
        } else {
            run.template operator()<T, N, float>(t, rows, x, {partial, nullptr, columns}, into::write);
        }
    });
    if (t.splits == 1) { return; }
    column_tiling last = tile_columns(sets, t.splits, columns, 1, 0);
    run.template operator()<float, 1, R>(last, t.splits, partial, target, how);
}

/// Bytes of scratch of column_sums, on any device.
[[nodiscard]] inline std::size_t column_sums_bytes(int sets, std::int64_t rows, int columns) {
    const auto splits = std::min<std::int64_t>(most_column_splits, std::max<std::int64_t>(1, rows / 8));
    return splits == 1 ? 0 : sizeof(float) * static_cast<std::size_t>(sets * splits) * columns;
}

/// dbias[features] = (or +=) the sums of dy [rows][features] over its rows: the bias gradient of linear layers and
/// convolutions. Must read dy once: e n bytes. Scratch: add_bias_gradient_scratch_bytes.
template <class T>
void add_bias_gradient(const queue& on, std::int64_t rows, int features, const T* dy, gradient_place<float> dbias) {
    if (rows < 0 || features < 1) {
        throw input_error("add_bias_gradient: rows must be at least 0 and features at least 1");
    }
    column_sums<T, float>(on, 1, rows, features, dy, {dbias.to, nullptr, features}, dbias.how,
                          reinterpret_cast<float*>(on.scratch));
}
[[nodiscard]] inline std::size_t add_bias_gradient_scratch_bytes(std::int64_t rows, int features) {
    return column_sums_bytes(1, rows, features);
}

/// t[b][c] = sum over p of y[b][p][c], of [batch][pixels][channels]. Must read y once: e n bytes. Scratch:
/// sum_pixels_scratch_bytes.
template <class T>
void sum_pixels(const queue& on, int batch, int pixels, int channels, const T* y, T* t) {
    if (batch < 1 || pixels < 1 || channels < 1) {
        throw input_error("sum_pixels: batch, pixels and channels must be at least 1");
    }
    column_sums<T, T>(on, batch, pixels, channels, y, {t, nullptr, channels}, into::write,
                      reinterpret_cast<float*>(on.scratch));
}
[[nodiscard]] inline std::size_t sum_pixels_scratch_bytes(int batch, int pixels, int channels) {
    return column_sums_bytes(batch, pixels, channels);
}

} // namespace pulse::cuda
