#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

// Attention without tensor cores: every product is a fused multiply-add in float, and rows are read one scalar at a
// time, so that any head size and alignment works. A block is 16x16 threads: thread (y, x) owns rows y RowsEach.. of
// its tile, columns x, x + 16, ... of the scores and features x, x + 16, ... of a head.

/// Sizes of tiles for heads of up to HeadSize features.
template <int HeadSize, int RowsEach, int ColumnsEach>
struct fma_tile {
    static constexpr int rows_each = RowsEach;
    static constexpr int columns_each = ColumnsEach;
    static constexpr int rows = 16 * RowsEach;
    static constexpr int columns = 16 * ColumnsEach;
    static constexpr int stride = HeadSize + 4;        ///< of rows of a head: eight at one column hit different banks
    static constexpr int weights_stride = columns + 4; ///< of rows of scores
    static constexpr int numbers_each = HeadSize / 16; ///< of a head

    static_assert(HeadSize % 16 == 0, "pulse::cuda: HeadSize must be a multiple of 16");
};

inline constexpr int fma_threads = 256;

/// Copies rows from token `first` on into a tile, as floats; pads with zeros beyond the last token, and after head_size
/// up to a multiple of 4.
template <class G, int Rows, class T>
__device__ void copy_rows_as_floats(float* tile, const head_rows<const T>& from, int first) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int depth = (from.head_size + 3) / 4 * 4;
    for (int row = warp; row < Rows; row += fma_threads / 32) {
        const T* const source = from.row(first + row);
        for (int c = static_cast<int>(threadIdx.x) % 32; c < depth; c += 32) {
            const bool present = first + row < from.tokens && c < from.head_size;
            tile[row * G::stride + c] = present ? to_float(source[c]) : 0.0f;
        }
    }
}

/// products[i][j] = the thread's row i of a, times row x + 16 j of b.
template <class G>
__device__ void fma_rows(float (&products)[G::rows_each][G::columns_each], const float* a, const float* b,
                         int head_size) {
    a += static_cast<int>(threadIdx.x) / 16 * G::rows_each * G::stride;
    b += static_cast<int>(threadIdx.x) % 16 * G::stride;
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
#pragma unroll
        for (int j = 0; j != G::columns_each; ++j) { products[i][j] = 0.0f; }
    }
    for (int c = 0; c < head_size; c += 4) {
        float4 right[G::columns_each];
#pragma unroll
        for (int j = 0; j != G::columns_each; ++j) {
            right[j] = *reinterpret_cast<const float4*>(b + j * 16 * G::stride + c);
        }
#pragma unroll
        for (int i = 0; i != G::rows_each; ++i) {
            const float4 left = *reinterpret_cast<const float4*>(a + i * G::stride + c);
#pragma unroll
            for (int j = 0; j != G::columns_each; ++j) {
                products[i][j] =
                    fmaf(left.w, right[j].w,
                         fmaf(left.z, right[j].z, fmaf(left.y, right[j].y, fmaf(left.x, right[j].x, products[i][j]))));
            }
        }
    }
}

/// sums[i][n] += the thread's row i of `weights` (which only threads of the same warp wrote), times feature x + 16 n of
/// the rows of b.
template <class G>
__device__ void fma_weights(float (&sums)[G::rows_each][G::numbers_each],
                            const float (&own)[G::rows_each][G::columns_each], float* weights, const float* b,
                            int head_size) {
    const int x = static_cast<int>(threadIdx.x) % 16;
    weights += static_cast<int>(threadIdx.x) / 16 * G::rows_each * G::weights_stride;
    __syncwarp(); // all reads of the rows' old values are done
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
#pragma unroll
        for (int j = 0; j != G::columns_each; ++j) { weights[i * G::weights_stride + x + 16 * j] = own[i][j]; }
    }
    __syncwarp();
    for (int key = 0; key != G::columns; key += 4) {
        float4 left[G::rows_each];
#pragma unroll
        for (int i = 0; i != G::rows_each; ++i) {
            left[i] = *reinterpret_cast<const float4*>(weights + i * G::weights_stride + key);
        }
#pragma unroll
        for (int n = 0; n != G::numbers_each; ++n) {
            if (16 * n >= head_size) { break; }
            const float* const right = b + key * G::stride + x + 16 * n;
#pragma unroll
            for (int i = 0; i != G::rows_each; ++i) {
                sums[i][n] = fmaf(left[i].w, right[3 * G::stride],
                                  fmaf(left[i].z, right[2 * G::stride],
                                       fmaf(left[i].y, right[G::stride], fmaf(left[i].x, right[0], sums[i][n]))));
            }
        }
    }
}

/// Writes sums times the row's factor to the thread's rows; the tile begins at row `first`.
template <class G, class T>
__device__ void store_numbers(const float (&sums)[G::rows_each][G::numbers_each], const float (&factors)[G::rows_each],
                              const head_rows<T>& to, int first) {
    const int x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
        const int row = first + static_cast<int>(threadIdx.x) / 16 * G::rows_each + i;
        if (row >= to.tokens) { continue; }
#pragma unroll
        for (int n = 0; n != G::numbers_each; ++n) {
            const int c = x + 16 * n;
            if (c < to.head_size) { to.row(row)[c] = from_float<T>(sums[i][n] * factors[i]); }
        }
    }
}

/// The forward pass; see attention_forward for the softmax.
template <class T, class G>
__global__ void __launch_bounds__(fma_threads, 1) attention_fma_forward(attention_operands<T> a) {
    auto* const queries = shared_memory<float>();           // [rows][stride]
    float* const keys = queries + G::rows * G::stride;      // [columns][stride]
    float* const values = keys + G::columns * G::stride;    // [columns][stride]
    float* const weights = values + G::columns * G::stride; // [rows][weights_stride]
    const int x = static_cast<int>(threadIdx.x) % 16;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const int first_row = static_cast<int>(blockIdx.x) * G::rows;
    const auto k = a.rows(a.k, a.keys, sample, head);
    const auto v = a.rows(a.v, a.keys, sample, head);
    copy_rows_as_floats<G, G::rows>(queries, a.rows(a.q, a.tokens, sample, head), first_row);
    const float scale = a.scale * log2_of_e;
    float sums[G::rows_each][G::numbers_each]{};
    float greatest[G::rows_each];
    float total[G::rows_each];
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
        greatest[i] = -INFINITY;
        total[i] = 0.0f;
    }
    for (int first = 0; first < a.keys; first += G::columns) {
        __syncthreads(); // all reads of the previous tile are done
        copy_rows_as_floats<G, G::columns>(keys, k, first);
        copy_rows_as_floats<G, G::columns>(values, v, first);
        __syncthreads();
        float scores[G::rows_each][G::columns_each];
        fma_rows<G>(scores, queries, keys, a.head_size);
#pragma unroll
        for (int i = 0; i != G::rows_each; ++i) {
            float most = -INFINITY;
#pragma unroll
            for (int j = 0; j != G::columns_each; ++j) {
                if (first + x + 16 * j >= a.keys) { scores[i][j] = -INFINITY; }
                most = fmaxf(most, scores[i][j]);
            }
#pragma unroll
            for (int far = 8; far != 0; far /= 2) { most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, far)); }
            most = fmaxf(greatest[i], __fmul_rn(scale, most));
            const float shrink = exp2f(greatest[i] - most);
            greatest[i] = most;
            total[i] *= shrink;
#pragma unroll
            for (int j = 0; j != G::columns_each; ++j) {
                scores[i][j] = exp2f(fmaf(scores[i][j], scale, -most));
                total[i] += scores[i][j];
            }
#pragma unroll
            for (int n = 0; n != G::numbers_each; ++n) { sums[i][n] *= shrink; }
        }
        fma_weights<G>(sums, scores, weights, values, a.head_size);
    }
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
        float sum = total[i];
#pragma unroll
        for (int far = 8; far != 0; far /= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, far); }
        total[i] = 1.0f / sum;
        const int row = first_row + static_cast<int>(threadIdx.x) / 16 * G::rows_each + i;
        if (x == 0 && row < a.tokens) {
            a.lse[a.numbers_at(sample, head) + row] = (greatest[i] + log2f(sum)) * log_of_2;
        }
    }
    store_numbers<G>(sums, total, a.rows(a.o, a.tokens, sample, head), first_row);
}

/// Gradients of keys and values; see attention_backward_keys.
template <class T, class G>
__global__ void __launch_bounds__(fma_threads, 1)
    attention_fma_backward_keys(attention_operands<T> a, attention_gradients<T> g) {
    auto* const keys = shared_memory<float>();               // [rows][stride]
    float* const values = keys + G::rows * G::stride;        // [rows][stride]
    float* const queries = values + G::rows * G::stride;     // [columns][stride]
    float* const dout = queries + G::columns * G::stride;    // [columns][stride]
    float* const transposed = dout + G::columns * G::stride; // [rows][weights_stride]
    const int x = static_cast<int>(threadIdx.x) % 16;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const query_part part{static_cast<int>(blockIdx.x) % g.parts, g.parts, a.tokens, G::columns};
    const int first_row = static_cast<int>(blockIdx.x) / g.parts * G::rows;
    const std::int64_t numbers = a.numbers_at(sample, head);
    copy_rows_as_floats<G, G::rows>(keys, a.rows(a.k, a.keys, sample, head), first_row);
    copy_rows_as_floats<G, G::rows>(values, a.rows(a.v, a.keys, sample, head), first_row);
    const float scale = a.scale * log2_of_e;
    float dk[G::rows_each][G::numbers_each]{};
    float dv[G::rows_each][G::numbers_each]{};
    for (int first = part.begin(); first < part.end(); first += G::columns) {
        __syncthreads(); // all reads of the previous tile are done
        copy_rows_as_floats<G, G::columns>(queries, a.rows(a.q, a.tokens, sample, head), first);
        copy_rows_as_floats<G, G::columns>(dout, a.rows(g.dout, a.tokens, sample, head), first);
        __syncthreads();
        float weights[G::rows_each][G::columns_each];
        float ds[G::rows_each][G::columns_each];
        fma_rows<G>(weights, keys, queries, a.head_size);
        fma_rows<G>(ds, values, dout, a.head_size);
#pragma unroll
        for (int j = 0; j != G::columns_each; ++j) {
            const int row = first + x + 16 * j;
            const float log_sum = row < a.tokens ? g.lse[numbers + row] * log2_of_e : INFINITY;
            const float mean = row < a.tokens ? g.delta[numbers + row] : 0.0f;
#pragma unroll
            for (int i = 0; i != G::rows_each; ++i) {
                weights[i][j] = exp2f(fmaf(weights[i][j], scale, -log_sum));
                ds[i][j] = weights[i][j] * (ds[i][j] - mean);
            }
        }
        fma_weights<G>(dv, weights, transposed, dout, a.head_size);
        fma_weights<G>(dk, ds, transposed, queries, a.head_size);
    }
    float scales[G::rows_each];
    float ones[G::rows_each];
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
        scales[i] = a.scale;
        ones[i] = 1.0f;
    }
    if (g.partial != nullptr) {
        store_numbers<G>(dk, scales, g.partial_rows(a, 0, part.index, sample, head), first_row);
        store_numbers<G>(dv, ones, g.partial_rows(a, 1, part.index, sample, head), first_row);
    } else {
        store_numbers<G>(dk, scales, a.rows(g.dk, a.keys, sample, head), first_row);
        store_numbers<G>(dv, ones, a.rows(g.dv, a.keys, sample, head), first_row);
    }
}

/// Gradients of queries; see attention_backward_queries.
template <class T, class G>
__global__ void __launch_bounds__(fma_threads, 1)
    attention_fma_backward_queries(attention_operands<T> a, attention_gradients<T> g) {
    auto* const queries = shared_memory<float>();           // [rows][stride]
    float* const dout = queries + G::rows * G::stride;      // [rows][stride]
    float* const keys = dout + G::rows * G::stride;         // [columns][stride]
    float* const values = keys + G::columns * G::stride;    // [columns][stride]
    float* const scratch = values + G::columns * G::stride; // [rows][weights_stride]
    const int x = static_cast<int>(threadIdx.x) % 16;
    const int head = static_cast<int>(blockIdx.y);
    const int sample = static_cast<int>(blockIdx.z);
    const int first_row = static_cast<int>(blockIdx.x) * G::rows;
    copy_rows_as_floats<G, G::rows>(queries, a.rows(a.q, a.tokens, sample, head), first_row);
    copy_rows_as_floats<G, G::rows>(dout, a.rows(g.dout, a.tokens, sample, head), first_row);
    const float scale = a.scale * log2_of_e;
    float log_sum[G::rows_each];
    float mean[G::rows_each];
    float scales[G::rows_each];
#pragma unroll
    for (int i = 0; i != G::rows_each; ++i) {
        const int row = first_row + static_cast<int>(threadIdx.x) / 16 * G::rows_each + i;
        const std::int64_t at = a.numbers_at(sample, head) + row;
        log_sum[i] = row < a.tokens ? g.lse[at] * log2_of_e : 0.0f;
        mean[i] = row < a.tokens ? g.delta[at] : 0.0f;
        scales[i] = a.scale;
    }
    float dq[G::rows_each][G::numbers_each]{};
    for (int first = 0; first < a.keys; first += G::columns) {
        __syncthreads(); // all reads of the previous tile are done
        copy_rows_as_floats<G, G::columns>(keys, a.rows(a.k, a.keys, sample, head), first);
        copy_rows_as_floats<G, G::columns>(values, a.rows(a.v, a.keys, sample, head), first);
        __syncthreads();
        float weights[G::rows_each][G::columns_each];
        float ds[G::rows_each][G::columns_each];
        fma_rows<G>(weights, queries, keys, a.head_size);
        fma_rows<G>(ds, dout, values, a.head_size);
#pragma unroll
        for (int j = 0; j != G::columns_each; ++j) {
            const bool present = first + x + 16 * j < a.keys;
#pragma unroll
            for (int i = 0; i != G::rows_each; ++i) {
                const float weight = present ? exp2f(fmaf(weights[i][j], scale, -log_sum[i])) : 0.0f;
                ds[i][j] = weight * (ds[i][j] - mean[i]);
            }
        }
        fma_weights<G>(dq, ds, scratch, keys, a.head_size);
    }
    store_numbers<G>(dq, scales, a.rows(g.dq, a.tokens, sample, head), first_row);
}

} // namespace pulse::cuda
