#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/async_copy.cuh>
#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/kernels/tensor_core.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// Layout in shared memory of rows of up to HeadSize scalars: padded with zeros to whole steps of the tensor cores and
/// then by 16 bytes, so that eight rows at the same column hit different banks.
template <class P, int HeadSize>
struct head_tile {
    using core = tensor_core<P>;
    using scalar = typename core::scalar;
    static constexpr int chunk = pack_size<scalar>; ///< scalars in 16 bytes
    static constexpr int steps = (HeadSize + core::step - 1) / core::step;
    static constexpr int stride = steps * core::step + chunk;
    static constexpr int columns = HeadSize / 8; ///< of 8 scalars

    static_assert(HeadSize % 8 == 0, "pulse::cuda: HeadSize must be a multiple of 8");
};

/// Copies rows of `Tensors` tensors of one shape into tiles, from token `first` on, `Rows` at a time. A thread copies
/// the same 16-byte column of all its rows, so that its offsets in a tile differ by compile-time constants. Threads
/// beyond the last whole row copy nothing.
template <class G, int Rows, int Threads, int Tensors = 1>
class row_copies {
public:
    using scalar = typename G::scalar;

    __device__ row_copies(const head_rows<const scalar> (&heads)[Tensors], int first) :
        stride_{heads[0].stride}, left_{column() < heads[0].head_size ? heads[0].tokens - first - row() : 0} {
#pragma unroll
        for (int t = 0; t != Tensors; ++t) { at_[t] = heads[t].row(first + row()) + column(); }
    }

    /// Begins to copy the next rows into tiles, `apart` scalars from one tensor's to the next; pads with zeros beyond
    /// the last token and head_size.
    __device__ void begin(scalar* tile, int apart = 0) {
        if (rows_apart * chunks == Threads || thread() < rows_apart * chunks) {
            tile += row() * G::stride + column();
            const scalar* from[Tensors];
#pragma unroll
            for (int t = 0; t != Tensors; ++t) { from[t] = at_[t]; }
#pragma unroll
            for (int i = 0; i < Rows; i += rows_apart) {
                if (i + rows_apart > Rows && row() >= Rows - i) { break; }
#pragma unroll
                for (int t = 0; t != Tensors; ++t) {
                    begin_copy(tile + t * apart + i * G::stride, from[t], i < left_);
                    from[t] += rows_apart * stride_;
                }
            }
        }
#pragma unroll
        for (int t = 0; t != Tensors; ++t) { at_[t] += Rows * static_cast<unsigned>(stride_); }
        left_ -= Rows;
    }

private:
    static constexpr int chunks = G::stride / G::chunk - 1; ///< per row
    static constexpr int rows_apart = Threads / chunks;     ///< between two copies of a thread

    static_assert(rows_apart > 0, "pulse::cuda: a block must have enough threads to copy a whole row at once");

    [[nodiscard]] static __device__ int thread() { return static_cast<int>(threadIdx.x); }
    [[nodiscard]] static __device__ int row() { return thread() / chunks; }
    [[nodiscard]] static __device__ int column() { return thread() % chunks * G::chunk; }

    const scalar* at_[Tensors]; ///< the thread's first 16 bytes of the next tiles; read only if they belong to a token
    int stride_;
    int left_; ///< tokens from the thread's next row on; none if its column is beyond head_size
};

/// Swaps the tile just read with the next one to write. Swapping two pointers takes fewer instructions than multiplying
/// a buffer index into each address.
template <class T>
__device__ void swap_tiles(T*& here, T*& there) {
    T* const was = here;
    here = there;
    there = was;
}

/// sums[r][j] += rows 16 r.. of a times rows 8 j.. of b, over the head: a times b transposed, for the rows of the
/// calling warp.
template <class G, int RowTiles, int Columns>
__device__ void multiply_rows(float (&sums)[RowTiles][Columns / 8][4], const typename G::scalar* a,
                              const typename G::scalar* b) {
    using core = typename G::core;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    a += lane % 16 * G::stride + lane / 16 * G::chunk;
    b += (lane / 16 * 8 + lane % 8) * G::stride + lane / 8 % 2 * G::chunk;
#pragma unroll
    for (int k = 0; k != G::steps; ++k) {
        unsigned left[RowTiles][4];
#pragma unroll
        for (int r = 0; r != RowTiles; ++r) {
            load_matrices(left[r], a + r * 16 * G::stride + k * core::step);
            core::round(left[r]);
        }
#pragma unroll
        for (int j = 0; j != Columns / 16; ++j) {
            unsigned right[4];
            load_matrices(right, b + j * 16 * G::stride + k * core::step);
            core::round(right);
#pragma unroll
            for (int r = 0; r != RowTiles; ++r) {
                core::multiply(sums[r][2 * j], left[r], right[0], right[1]);
                core::multiply(sums[r][2 * j + 1], left[r], right[2], right[3]);
            }
        }
    }
}

/// sums[r][n] += factors[r] times columns 8 n.. of the rows of b. The factors are sums of multiply_rows in their
/// register layout: a lane's part of two tiles of sums is exactly its part of a tile of 16-bit factors. For 32-bit
/// factors a lane must supply columns t and t + 4 but holds 2t and 2t + 1, so the rows of b are read in that order
/// instead.
template <class G, int RowTiles, int Columns>
__device__ void multiply_weights(float (&sums)[RowTiles][G::columns][4],
                                 const float (&factors)[RowTiles][Columns / 8][4], const typename G::scalar* b) {
    using core = typename G::core;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (core::step == 16) {
        b += lane % 16 * G::stride + lane / 16 * 8;
#pragma unroll
        for (int m = 0; m != Columns / 16; ++m) {
            unsigned left[RowTiles][4];
#pragma unroll
            for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
                for (int half = 0; half != 2; ++half) {
                    const float(&tile)[4] = factors[r][2 * m + half];
                    left[r][2 * half] = core::pair(tile[0], tile[1]);
                    left[r][2 * half + 1] = core::pair(tile[2], tile[3]);
                }
            }
#pragma unroll
            for (int n = 0; n < G::columns; n += 2) {
                unsigned right[4];
                load_matrices_transposed(right, b + m * 16 * G::stride + n * 8);
#pragma unroll
                for (int r = 0; r != RowTiles; ++r) {
                    core::multiply(sums[r][n], left[r], right[0], right[1]);
                    if (n + 1 < G::columns) { core::multiply(sums[r][n + 1], left[r], right[2], right[3]); }
                }
            }
        }
    } else {
        b += lane % 4 * 2 * G::stride + lane / 4;
#pragma unroll
        for (int m = 0; m != Columns / 8; ++m) {
            unsigned left[RowTiles][4];
#pragma unroll
            for (int r = 0; r != RowTiles; ++r) {
                const float(&tile)[4] = factors[r][m];
                left[r][0] = round_to_tf32(tile[0]);
                left[r][1] = round_to_tf32(tile[2]);
                left[r][2] = round_to_tf32(tile[1]);
                left[r][3] = round_to_tf32(tile[3]);
            }
#pragma unroll
            for (int n = 0; n != G::columns; ++n) {
                const float* const column = b + m * 8 * G::stride + n * 8;
                const unsigned first = round_to_tf32(column[0]);
                const unsigned second = round_to_tf32(column[G::stride]);
#pragma unroll
                for (int r = 0; r != RowTiles; ++r) { core::multiply(sums[r][n], left[r], first, second); }
            }
        }
    }
}

/// Gives the columns of a tile beyond the last key a weight of 0. `first` is the tile's first key.
template <int RowTiles, int Columns>
__device__ void mask_columns(float (&scores)[RowTiles][Columns / 8][4], int first, int keys) {
    const int column = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int j = 0; j != Columns / 8; ++j) {
#pragma unroll
        for (int e = 0; e != 2; ++e) {
            if (column + j * 8 + e < keys) { continue; }
#pragma unroll
            for (int r = 0; r != RowTiles; ++r) { scores[r][j][e] = scores[r][j][e + 2] = -INFINITY; }
        }
    }
}

/// Writes the calling warp's sums, times a factor per row, to rows from `first` on, through `staging`, rows of shared
/// memory that no other warp uses.
template <class G, int RowTiles>
__device__ void store_rows(const float (&sums)[RowTiles][G::columns][4], const float (&factors)[RowTiles][2],
                           typename G::scalar* staging, const head_rows<typename G::scalar>& to, int first) {
    using scalar = typename G::scalar;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
        for (int half = 0; half != 2; ++half) {
            scalar* const row = staging + (r * 16 + half * 8 + lane / 4) * G::stride + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n != G::columns; ++n) {
                G::core::store_pair(row + n * 8, sums[r][n][2 * half] * factors[r][half],
                                    sums[r][n][2 * half + 1] * factors[r][half]);
            }
        }
    }
    __syncwarp();
    const int chunks = to.head_size / G::chunk;
    const int rows = min(RowTiles * 16, to.tokens - first);
    for (int i = lane; i < rows * chunks; i += 32) {
        const int row = i / chunks;
        const int column = (i - row * chunks) * G::chunk;
        // store_pack's instruction needs more registers, which spill on sm_120.
        *reinterpret_cast<int4*>(to.row(first + row) + column) =
            *reinterpret_cast<const int4*>(staging + row * G::stride + column);
    }
}

/// Writes the calling warp's sums, times a factor, to rows of floats from `first` on.
template <class G, int RowTiles>
__device__ void store_sums(const float (&sums)[RowTiles][G::columns][4], float factor, const head_rows<float>& to,
                           int first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int r = 0; r != RowTiles; ++r) {
#pragma unroll
        for (int half = 0; half != 2; ++half) {
            const int row = first + r * 16 + half * 8 + lane / 4;
            if (row >= to.tokens) { continue; }
            float* const from_column = to.row(row) + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n != G::columns; ++n) {
                if (n * 8 >= to.head_size) { break; }
                *reinterpret_cast<float2*>(from_column + n * 8) =
                    make_float2(sums[r][n][2 * half] * factor, sums[r][n][2 * half + 1] * factor);
            }
        }
    }
}

} // namespace pulse::cuda
