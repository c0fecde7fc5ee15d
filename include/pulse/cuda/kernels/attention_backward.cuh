#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/kernels/attention_tile.cuh>
#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

// With P = softmax(S), S = scale Q K^T and O = P V (Dao et al. 2022, appendix B.2): dV = P^T dO, dP = dO V^T,
// dS = P (dP - delta) with delta = rowsum(dO O), dQ = scale dS K, dK = scale dS^T Q. P comes from the saved lse.

/// Sums of dout * o over each head, [batch][heads][tokens]: eight lanes per row. `rows` = batch * tokens * heads.
template <class T, int Threads>
__global__ void __launch_bounds__(Threads)
    attention_delta(std::int64_t rows, int tokens, int heads, int head_size, const T* o, const T* dout, float* delta) {
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * Threads + threadIdx.x;
    const std::int64_t row = thread / 8;
    const int lane = static_cast<int>(thread % 8);
    float sum = 0.0f;
    if (row < rows) {
        const T* const x = o + row * head_size;
        const T* const y = dout + row * head_size;
        if (is_packable<T>(head_size, o, dout)) {
            for (int i = lane * pack_size<T>; i < head_size; i += 8 * pack_size<T>) {
                const pack<T> left = load_pack(x + i);
                const pack<T> right = load_pack(y + i);
#pragma unroll
                for (int e = 0; e != pack_size<T>; ++e) { sum = fmaf(left.get(e), right.get(e), sum); }
            }
        } else {
            for (int i = lane; i < head_size; i += 8) { sum = fmaf(to_float(x[i]), to_float(y[i]), sum); }
        }
    }
#pragma unroll
    for (int far = 4; far != 0; far /= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, far); }
    if (row < rows && lane == 0) {
        const std::int64_t token = row / heads;
        delta[(token / tokens * heads + row % heads) * tokens + token % tokens] = sum;
    }
}

/// Gradients of keys and values: a block owns a tile of keys, a warp 16 RowTiles of them, and loops over its part of
/// the queries, `Columns` at a time. Scores are computed transposed, so that a warp keeps P^T and dS^T in registers.
/// Head sizes for which both gradients do not fit into registers take one launch per gradient.
template <class G, int Warps, int RowTiles, int Columns, bool Keys, bool Values>
__global__ void __launch_bounds__(Warps * 32)
    attention_backward_keys(attention_operands<typename G::scalar> a, attention_gradients<typename G::scalar> g) {
    using scalar = typename G::scalar;
    constexpr int rows = Warps * RowTiles * 16;
    constexpr int threads = Warps * 32;
    constexpr int tile = Columns * G::stride;
    auto* const keys = shared_memory<scalar>();          // [rows][stride], and values [rows][stride]
    scalar* const queries = keys + 2 * rows * G::stride; // [2][Columns][stride], and dout [2][Columns][stride]
    auto* const numbers = reinterpret_cast<float*>(queries + 4 * tile); // [2][lse or delta][Columns]
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const query_part part{static_cast<int>(blockIdx.x) % g.parts, g.parts, a.tokens, Columns};
    const int first_row = static_cast<int>(blockIdx.x) / g.parts * rows;
    const int end = part.end();
    row_copies<G, Columns, threads, 2> of_queries(
        {a.rows(a.q, a.tokens, sample, head), a.rows(g.dout, a.tokens, sample, head)}, part.begin());
    const float* const lse = g.lse + a.numbers_at(sample, head);
    const float* const delta = g.delta + a.numbers_at(sample, head);
    // Queries past the end are zero in q, dout, lse and delta: their weight is 1 and they add 0.
    const auto begin_tile = [&](int from, int turn) {
        of_queries.begin(queries + turn * tile, 2 * tile);
        if (static_cast<int>(threadIdx.x) < Columns) {
            const int i = static_cast<int>(threadIdx.x);
            const bool present = from + i < a.tokens;
            begin_copy_word(numbers + turn * 2 * Columns + i, lse + from + i, present);
            begin_copy_word(numbers + (turn * 2 + 1) * Columns + i, delta + from + i, present);
        }
    };
    row_copies<G, rows, threads, 2>({a.rows(a.k, a.keys, sample, head), a.rows(a.v, a.keys, sample, head)}, first_row)
        .begin(keys, rows * G::stride);
    begin_tile(part.begin(), 0);
    scalar* const own_keys = keys + warp * RowTiles * 16 * G::stride;
    scalar* const own_values = own_keys + rows * G::stride;
    const float scale = a.scale * log2_of_e;
    [[maybe_unused]] float dk[RowTiles][G::columns][4]{};
    [[maybe_unused]] float dv[RowTiles][G::columns][4]{};
    for (int first = part.begin(), turn = 0; first < end; first += Columns, turn ^= 1) {
        wait_for_copies();
        __syncthreads(); // this tile has arrived, and all reads of the previous one are done
        if (first + Columns < end) { begin_tile(first + Columns, turn ^ 1); }
        const float* const of_tile = numbers + turn * 2 * Columns + lane % 4 * 2;
        float weights[RowTiles][Columns / 8][4]{}; // P^T
        multiply_rows<G, RowTiles, Columns>(weights, own_keys, queries + turn * tile);
#pragma unroll
        for (int j = 0; j != Columns / 8; ++j) {
#pragma unroll
            for (int e = 0; e != 2; ++e) {
                const float log_sum = of_tile[j * 8 + e] * log2_of_e;
#pragma unroll
                for (int r = 0; r != RowTiles; ++r) {
                    weights[r][j][e] = exp2_fast(fmaf(weights[r][j][e], scale, -log_sum));
                    weights[r][j][e + 2] = exp2_fast(fmaf(weights[r][j][e + 2], scale, -log_sum));
                }
            }
        }
        if constexpr (Values) { multiply_weights<G, RowTiles, Columns>(dv, weights, queries + (2 + turn) * tile); }
        if constexpr (!Keys) { continue; }
        float ds[RowTiles][Columns / 8][4]{}; // dP^T, then dS^T without its scale
        multiply_rows<G, RowTiles, Columns>(ds, own_values, queries + (2 + turn) * tile);
#pragma unroll
        for (int j = 0; j != Columns / 8; ++j) {
#pragma unroll
            for (int e = 0; e != 2; ++e) {
                const float mean = of_tile[Columns + j * 8 + e];
#pragma unroll
                for (int r = 0; r != RowTiles; ++r) {
                    ds[r][j][e] = weights[r][j][e] * (ds[r][j][e] - mean);
                    ds[r][j][e + 2] = weights[r][j][e + 2] * (ds[r][j][e + 2] - mean);
                }
            }
        }
        multiply_weights<G, RowTiles, Columns>(dk, ds, queries + turn * tile);
    }
    const int first_own = first_row + warp * RowTiles * 16;
    if (g.partial != nullptr) {
        if constexpr (Keys) {
            store_sums<G, RowTiles>(dk, a.scale, g.partial_rows(a, 0, part.index, sample, head), first_own);
        }
        if constexpr (Values) {
            store_sums<G, RowTiles>(dv, 1.0f, g.partial_rows(a, 1, part.index, sample, head), first_own);
        }
        return;
    }
    float scales[RowTiles][2];
    float ones[RowTiles][2];
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
        scales[r][0] = scales[r][1] = a.scale;
        ones[r][0] = ones[r][1] = 1.0f;
    }
    if constexpr (Keys) {
        store_rows<G, RowTiles>(dk, scales, own_keys, a.rows(g.dk, a.keys, sample, head), first_own);
    }
    if constexpr (Values) {
        store_rows<G, RowTiles>(dv, ones, own_values, a.rows(g.dv, a.keys, sample, head), first_own);
    }
}

/// Gradients of queries: a block owns a tile of queries, a warp 16 RowTiles of them, and loops over the keys.
template <class G, int Warps, int RowTiles, int Columns>
__global__ void __launch_bounds__(Warps * 32)
    attention_backward_queries(attention_operands<typename G::scalar> a, attention_gradients<typename G::scalar> g) {
    using scalar = typename G::scalar;
    constexpr int rows = Warps * RowTiles * 16;
    constexpr int threads = Warps * 32;
    constexpr int tile = Columns * G::stride;
    auto* const queries = shared_memory<scalar>();       // [rows][stride], and dout [rows][stride]
    scalar* const keys = queries + 2 * rows * G::stride; // [2][Columns][stride], and values [2][Columns][stride]
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const int first_row = static_cast<int>(blockIdx.x) * rows;
    const int first_own = first_row + warp * RowTiles * 16;
    row_copies<G, Columns, threads, 2> of_keys({a.rows(a.k, a.keys, sample, head), a.rows(a.v, a.keys, sample, head)},
                                               0);
    row_copies<G, rows, threads, 2>({a.rows(a.q, a.tokens, sample, head), a.rows(g.dout, a.tokens, sample, head)},
                                    first_row)
        .begin(queries, rows * G::stride);
    of_keys.begin(keys, 2 * tile);
    scalar* const own_queries = queries + warp * RowTiles * 16 * G::stride;
    scalar* const own_dout = own_queries + rows * G::stride;
    const float scale = a.scale * log2_of_e;
    float log_sum[RowTiles][2];
    float mean[RowTiles][2];
    float scales[RowTiles][2];
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
        for (int half = 0; half != 2; ++half) {
            const int row = first_own + r * 16 + half * 8 + lane / 4;
            const std::int64_t at = a.numbers_at(sample, head) + row;
            log_sum[r][half] = row < a.tokens ? g.lse[at] * log2_of_e : 0.0f;
            mean[r][half] = row < a.tokens ? g.delta[at] : 0.0f;
            scales[r][half] = a.scale;
        }
    }
    float dq[RowTiles][G::columns][4]{};
    scalar* here = keys;
    scalar* there = keys + tile;
    for (int first = 0; first < a.keys; first += Columns, swap_tiles(here, there)) {
        wait_for_copies();
        __syncthreads(); // this tile has arrived, and all reads of the previous one are done
        if (first + Columns < a.keys) { of_keys.begin(there, 2 * tile); }
        float weights[RowTiles][Columns / 8][4]{};
        multiply_rows<G, RowTiles, Columns>(weights, own_queries, here);
        if (first + Columns > a.keys) { mask_columns<RowTiles, Columns>(weights, first, a.keys); }
        float ds[RowTiles][Columns / 8][4]{};
        multiply_rows<G, RowTiles, Columns>(ds, own_dout, here + 2 * tile);
#pragma unroll
        for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
            for (int j = 0; j != Columns / 8; ++j) {
#pragma unroll
                for (int e = 0; e != 4; ++e) {
                    const float weight = exp2_fast(fmaf(weights[r][j][e], scale, -log_sum[r][e / 2]));
                    ds[r][j][e] = weight * (ds[r][j][e] - mean[r][e / 2]);
                }
            }
        }
        multiply_weights<G, RowTiles, Columns>(dq, ds, here);
    }
    store_rows<G, RowTiles>(dq, scales, own_queries, a.rows(g.dq, a.tokens, sample, head), first_own);
}

/// dk and dv [n] from sums over parts of the queries, in the order of the parts.
template <class T, int Threads>
__global__ void __launch_bounds__(Threads)
    attention_join_parts(std::int64_t n, int parts, const float* partial, T* dk, T* dv) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * Threads + threadIdx.x;
    if (i >= 2 * n) { return; }
    const bool of_values = i >= n;
    const std::int64_t at = of_values ? i - n : i;
    const float* const first = partial + (of_values ? parts * n : 0) + at;
    float sum = 0.0f;
    for (int part = 0; part != parts; ++part) { sum += first[part * n]; }
    (of_values ? dv : dk)[at] = from_float<T>(sum);
}

} // namespace pulse::cuda
