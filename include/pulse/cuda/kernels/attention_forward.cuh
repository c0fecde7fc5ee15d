#pragma once

#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/kernels/attention_tile.cuh>
#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

/// Online softmax over tiles of keys, in base 2 (Milakov and Gimelshein 2018; Dao 2023): weights are relative to the
/// greatest score so far, and earlier sums are scaled down when a greater score is found.
template <class G, int Warps, int RowTiles, int Columns>
__global__ void __launch_bounds__(Warps * 32) attention_forward(attention_operands<typename G::scalar> a) {
    using scalar = typename G::scalar;
    constexpr int rows = Warps * RowTiles * 16;
    constexpr int threads = Warps * 32;
    constexpr int tile = Columns * G::stride;
    auto* const queries = shared_memory<scalar>();   // [rows][stride]
    scalar* const keys = queries + rows * G::stride; // [2][Columns][stride], and values [2][Columns][stride]
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const int first_row = static_cast<int>(blockIdx.x) * rows;
    row_copies<G, Columns, threads, 2> of_keys({a.rows(a.k, a.keys, sample, head), a.rows(a.v, a.keys, sample, head)},
                                               0);
    row_copies<G, rows, threads>({a.rows(a.q, a.tokens, sample, head)}, first_row).begin(queries);
    of_keys.begin(keys, 2 * tile);
    scalar* const own = queries + warp * RowTiles * 16 * G::stride;
    const float scale = a.scale * log2_of_e;
    float sums[RowTiles][G::columns][4]{};
    float greatest[RowTiles][2]; // of the scaled scores, of rows g and g + 8 of each tile
    float total[RowTiles][2];    // of the lane's own weights
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
        greatest[r][0] = greatest[r][1] = -INFINITY;
        total[r][0] = total[r][1] = 0.0f;
    }
    scalar* here = keys;
    scalar* there = keys + tile;
    for (int first = 0; first < a.keys; first += Columns, swap_tiles(here, there)) {
        wait_for_copies();
        __syncthreads(); // this tile has arrived, and all reads of the previous one are done
        if (first + Columns < a.keys) { of_keys.begin(there, 2 * tile); }
        float scores[RowTiles][Columns / 8][4]{};
        multiply_rows<G, RowTiles, Columns>(scores, own, here);
        if (first + Columns > a.keys) { mask_columns<RowTiles, Columns>(scores, first, a.keys); }
#pragma unroll
        for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
            for (int half = 0; half != 2; ++half) {
                float most = scores[r][0][2 * half];
#pragma unroll
                for (int j = 0; j != Columns / 8; ++j) {
                    most = fmaxf(most, fmaxf(scores[r][j][2 * half], scores[r][j][2 * half + 1]));
                }
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                most = fmaxf(greatest[r][half], __fmul_rn(scale, most));
                const float shrink = exp2_fast(greatest[r][half] - most);
                greatest[r][half] = most;
                float sum = total[r][half] * shrink;
#pragma unroll
                for (int j = 0; j != Columns / 8; ++j) {
#pragma unroll
                    for (int e = 2 * half; e != 2 * half + 2; ++e) {
                        scores[r][j][e] = exp2_fast(fmaf(scores[r][j][e], scale, -most));
                        sum += scores[r][j][e];
                    }
                }
                total[r][half] = sum;
#pragma unroll
                for (int n = 0; n != G::columns; ++n) {
                    sums[r][n][2 * half] *= shrink;
                    sums[r][n][2 * half + 1] *= shrink;
                }
            }
        }
        multiply_weights<G, RowTiles, Columns>(sums, scores, here + 2 * tile);
    }
    const int first_own = first_row + warp * RowTiles * 16;
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
        for (int half = 0; half != 2; ++half) {
            float sum = total[r][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            total[r][half] = 1.0f / sum;
            const int row = first_own + r * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < a.tokens) {
                a.lse[a.numbers_at(sample, head) + row] = (greatest[r][half] + log2f(sum)) * log_of_2;
            }
        }
    }
    store_rows<G, RowTiles>(sums, total, own, a.rows(a.o, a.tokens, sample, head), first_own);
}

} // namespace pulse::cuda
