#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/kernels/attention_backward.cuh>
#include <pulse/cuda/kernels/attention_fma.cuh>
#include <pulse/cuda/kernels/attention_forward.cuh>
#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>

namespace pulse::cuda {

/// Shared memory that a block may have on every device that pulse is built for; the least is that of sm_80.
inline constexpr std::size_t most_shared_bytes = 163 * 1024;

/// How one pass is cut into tiles: a warp has 16 row_tiles rows and goes through the others by `columns`.
struct attention_tiling {
    int row_tiles{};
    int columns{};
};

/// Tiles of the passes over heads of up to HeadSize numbers of `Bytes` bytes. More rows for each warp mean fewer
/// reads of shared memory; registers set the limit, and where they allow it two blocks share a multiprocessor.
template <int HeadSize, int Bytes>
struct attention_tilings {
    static constexpr int warps = 4;
    static constexpr attention_tiling forward = Bytes == 4        ? attention_tiling{1, 32}
                                                : HeadSize <= 88  ? attention_tiling{2, 64}
                                                : HeadSize <= 160 ? attention_tiling{2, 32}
                                                                  : attention_tiling{1, 32};
    static constexpr attention_tiling keys = Bytes == 4       ? attention_tiling{1, 16}
                                             : HeadSize <= 64 ? attention_tiling{2, 32}
                                             : HeadSize <= 88 ? attention_tiling{1, 64}
                                                              : attention_tiling{1, 32};
    static constexpr attention_tiling queries = Bytes == 4       ? attention_tiling{1, HeadSize <= 88 ? 32 : 16}
                                                : HeadSize <= 88 ? attention_tiling{2, 32}
                                                                 : attention_tiling{1, 32};
    /// Whether registers hold the gradients of keys and values at once.
    static constexpr bool keys_and_values = HeadSize <= 160;
};

/// The kernels of one way to compute attention, behind functions of the host.
template <class T>
struct attention_launches {
    void (*forward)(const queue& on, int batch, const attention_operands<T>& a);
    /// Besides attention_delta and attention_join_parts.
    void (*backward)(const queue& on, int batch, const attention_operands<T>& a, const attention_gradients<T>& g);
    int key_rows;      ///< keys of a block of the backward pass
    int query_columns; ///< queries of each of its tiles
};

/// Blocks of tiles of `rows` tokens, for each head and sample.
template <class T>
[[nodiscard]] dim3 attention_grid(int tokens, int rows, int parts, const attention_operands<T>& a, int batch) {
    return {static_cast<unsigned>((tokens + rows - 1) / rows * parts), static_cast<unsigned>(a.heads),
            static_cast<unsigned>(batch)};
}

/// Launches on tensor cores.
template <class P, int HeadSize>
struct tensor_core_attention {
    using tile = head_tile<P, HeadSize>;
    using scalar = typename tile::scalar;
    using tilings = attention_tilings<HeadSize, sizeof(scalar)>;
    static constexpr int warps = tilings::warps;

    static void forward(const queue& on, int batch, const attention_operands<scalar>& a) {
        constexpr attention_tiling t = tilings::forward;
        constexpr int rows = warps * t.row_tiles * 16;
        constexpr std::size_t bytes = sizeof(scalar) * tile::stride * (rows + 4 * t.columns);
        static_assert(bytes <= most_shared_bytes);
        launch(attention_forward<tile, warps, t.row_tiles, t.columns>, attention_grid(a.tokens, rows, 1, a, batch),
               dim3(warps * 32), bytes, on.stream, a);
    }

    static void backward(const queue& on, int batch, const attention_operands<scalar>& a,
                         const attention_gradients<scalar>& g) {
        if constexpr (tilings::keys_and_values) {
            backward_keys<true, true>(on, batch, a, g);
        } else {
            backward_keys<true, false>(on, batch, a, g);
            backward_keys<false, true>(on, batch, a, g);
        }
        constexpr attention_tiling t = tilings::queries;
        constexpr int rows = warps * t.row_tiles * 16;
        constexpr std::size_t bytes = sizeof(scalar) * tile::stride * (2 * rows + 4 * t.columns);
        static_assert(bytes <= most_shared_bytes);
        launch(attention_backward_queries<tile, warps, t.row_tiles, t.columns>,
               attention_grid(a.tokens, rows, 1, a, batch), dim3(warps * 32), bytes, on.stream, a, g);
    }

    static constexpr attention_launches<scalar> all{&forward, &backward, warps* tilings::keys.row_tiles * 16,
                                                    tilings::keys.columns};

private:
    template <bool Keys, bool Values>
    static void backward_keys(const queue& on, int batch, const attention_operands<scalar>& a,
                              const attention_gradients<scalar>& g) {
        constexpr attention_tiling t = tilings::keys;
        constexpr int rows = warps * t.row_tiles * 16;
        constexpr std::size_t bytes =
            sizeof(scalar) * tile::stride * (2 * rows + 4 * t.columns) + sizeof(float) * 4 * t.columns;
        static_assert(bytes <= most_shared_bytes);
        launch(attention_backward_keys<tile, warps, t.row_tiles, t.columns, Keys, Values>,
               attention_grid(a.keys, rows, g.parts, a, batch), dim3(warps * 32), bytes, on.stream, a, g);
    }
};

/// Launches without tensor cores.
template <class T, class Tile>
struct fma_attention {
    static void forward(const queue& on, int batch, const attention_operands<T>& a) {
        constexpr std::size_t bytes = bytes_of(1, 2);
        static_assert(bytes <= most_shared_bytes);
        launch(attention_fma_forward<T, Tile>, attention_grid(a.tokens, Tile::rows, 1, a, batch), dim3(fma_threads),
               bytes, on.stream, a);
    }
    static void backward(const queue& on, int batch, const attention_operands<T>& a, const attention_gradients<T>& g) {
        constexpr std::size_t bytes = bytes_of(2, 2);
        static_assert(bytes <= most_shared_bytes);
        launch(attention_fma_backward_keys<T, Tile>, attention_grid(a.keys, Tile::rows, g.parts, a, batch),
               dim3(fma_threads), bytes, on.stream, a, g);
        launch(attention_fma_backward_queries<T, Tile>, attention_grid(a.tokens, Tile::rows, 1, a, batch),
               dim3(fma_threads), bytes, on.stream, a, g);
    }

    static constexpr attention_launches<T> all{&forward, &backward, Tile::rows, Tile::columns};

private:
    [[nodiscard]] static constexpr std::size_t bytes_of(int row_tiles, int column_tiles) {
        return sizeof(float) *
               (static_cast<std::size_t>(Tile::stride) * (row_tiles * Tile::rows + column_tiles * Tile::columns) +
                static_cast<std::size_t>(Tile::weights_stride) * Tile::rows);
    }
};

/// The launches for a head size of up to most_fma_head_size. 16-bit scalars come here only where the tensor cores
/// cannot take them, and make do with the tiles of the greatest heads.
template <class T>
[[nodiscard]] attention_launches<T> fma_attention_for([[maybe_unused]] int head_size) {
    if constexpr (sizeof(T) == 4) {
        if (head_size <= 64) { return fma_attention<T, fma_tile<64, 4, 4>>::all; }
        if (head_size <= 128) { return fma_attention<T, fma_tile<128, 4, 2>>::all; }
    }
    return fma_attention<T, fma_tile<most_fma_head_size, 2, 2>>::all;
}

/// The launches for a multiple of 8 of up to most_tensor_core_head_size: those of the next size that has kernels of its
/// own, where numbers beyond the head are zeros. 16-bit scalars have one for every head size of the zoo.
template <class P>
[[nodiscard]] attention_launches<typename P::scalar> tensor_core_attention_for(int head_size) {
    if constexpr (sizeof(typename P::scalar) == 2) {
        if (head_size <= 40) { return tensor_core_attention<P, 40>::all; }
        if (head_size <= 64) { return tensor_core_attention<P, 64>::all; }
        if (head_size <= 72) { return tensor_core_attention<P, 72>::all; }
        if (head_size <= 80) { return tensor_core_attention<P, 80>::all; }
        if (head_size <= 88) { return tensor_core_attention<P, 88>::all; }
        if (head_size <= 128) { return tensor_core_attention<P, 128>::all; }
        return head_size <= 160 ? tensor_core_attention<P, 160>::all : tensor_core_attention<P, 256>::all;
    } else {
        if (head_size <= 64) { return tensor_core_attention<P, 64>::all; }
        if (head_size <= 88) { return tensor_core_attention<P, 88>::all; }
        return head_size <= 128 ? tensor_core_attention<P, 128>::all : tensor_core_attention<P, 160>::all;
    }
}

} // namespace pulse::cuda
