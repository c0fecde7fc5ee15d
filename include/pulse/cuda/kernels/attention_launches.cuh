#pragma once

#include <cstddef>

#include <cuda_runtime.h>

#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/kernels/attention_backward.cuh>
#include <pulse/cuda/kernels/attention_fma.cuh>
#include <pulse/cuda/kernels/attention_forward.cuh>
#include <pulse/cuda/kernels/attention_operands.cuh>
#include <pulse/cuda/kernels/attention_tile.cuh>
#include <pulse/cuda/kernels/attention_tilings.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/plan/cuda_memory.hpp>

namespace pulse::cuda {

/// The kernels of one attention engine, behind host functions.
template <class T>
struct attention_launches {
    void (*forward)(const queue& on, int batch, const attention_operands<T>& a);
    /// Besides attention_delta and attention_join_parts.
    void (*backward)(const queue& on, int batch, const attention_operands<T>& a, const attention_gradients<T>& g);
    int key_rows;      ///< keys per block of the backward pass
    int query_columns; ///< queries per tile of the backward pass
};

/// The grid: `parts` blocks per tile of `rows` tokens, head and sample.
template <class T>
[[nodiscard]] dim3 attention_grid(int tokens, int rows, int parts, const attention_operands<T>& a, int batch) {
    return {static_cast<unsigned>((tokens + rows - 1) / rows * parts), static_cast<unsigned>(a.heads),
            static_cast<unsigned>(batch)};
}

/// Launches on tensor cores with up to `Shared` bytes of shared memory per block.
template <class P, int HeadSize, std::size_t Shared = large_shared_bytes>
struct tensor_core_attention {
    using tile = head_tile<P, HeadSize>;
    using scalar = typename tile::scalar;
    using kernel = attention_kernel;
    static constexpr int size = sizeof(scalar);
    static constexpr attention_tiling of_forward = attention_tiling_of(kernel::forward, HeadSize, size, Shared);
    static constexpr attention_tiling of_keys = attention_tiling_of(kernel::backward_keys, HeadSize, size, Shared);
    static constexpr attention_tiling of_queries =
        attention_tiling_of(kernel::backward_queries, HeadSize, size, Shared);

    static_assert(size * tile::stride == attention_row_bytes(HeadSize, size));
    static_assert(of_keys.rows() * HeadSize <= cuda_attention_numbers);

    static void forward(const queue& on, int batch, const attention_operands<scalar>& a) {
        constexpr attention_tiling t = of_forward;
        constexpr std::size_t bytes = attention_shared_bytes(kernel::forward, HeadSize, size, t);
        static_assert(bytes <= Shared);
        launch(attention_forward<tile, t.warps, t.row_tiles, t.columns>,
               attention_grid(a.tokens, t.rows(), 1, a, batch), dim3(t.threads()), bytes, on.stream, a);
    }

    static void backward(const queue& on, int batch, const attention_operands<scalar>& a,
                         const attention_gradients<scalar>& g) {
        if constexpr (HeadSize <= 160) { // the gradients of keys and values both fit into registers
            backward_keys<true, true>(on, batch, a, g);
        } else {
            backward_keys<true, false>(on, batch, a, g);
            backward_keys<false, true>(on, batch, a, g);
        }
        constexpr attention_tiling t = of_queries;
        constexpr std::size_t bytes = attention_shared_bytes(kernel::backward_queries, HeadSize, size, t);
        static_assert(bytes <= Shared);
        launch(attention_backward_queries<tile, t.warps, t.row_tiles, t.columns>,
               attention_grid(a.tokens, t.rows(), 1, a, batch), dim3(t.threads()), bytes, on.stream, a, g);
    }

    static constexpr attention_launches<scalar> all{&forward, &backward, of_keys.rows(), of_keys.columns};

private:
    template <bool Keys, bool Values>
    static void backward_keys(const queue& on, int batch, const attention_operands<scalar>& a,
                              const attention_gradients<scalar>& g) {
        constexpr attention_tiling t = of_keys;
        constexpr std::size_t bytes = attention_shared_bytes(kernel::backward_keys, HeadSize, size, t);
        static_assert(bytes <= Shared);
        launch(attention_backward_keys<tile, t.warps, t.row_tiles, t.columns, Keys, Values>,
               attention_grid(a.keys, t.rows(), g.parts, a, batch), dim3(t.threads()), bytes, on.stream, a, g);
    }
};

/// Launches without tensor cores with up to `Shared` bytes of shared memory per block.
template <class T, int HeadSize, std::size_t Shared>
struct fma_attention {
    using kernel = attention_kernel;
    static constexpr fma_tiling of_forward = fma_tiling_of(kernel::forward, HeadSize, Shared);
    static constexpr fma_tiling of_backward = fma_tiling_of(kernel::backward_keys, HeadSize, Shared);
    using forward_tile = fma_tile<HeadSize, of_forward.rows_each, of_forward.columns_each>;
    using backward_tile = fma_tile<HeadSize, of_backward.rows_each, of_backward.columns_each>;

    static_assert(backward_tile::rows * HeadSize <= cuda_attention_numbers);

    static void forward(const queue& on, int batch, const attention_operands<T>& a) {
        constexpr std::size_t bytes = fma_shared_bytes(kernel::forward, HeadSize, of_forward);
        static_assert(bytes <= Shared);
        launch(attention_fma_forward<T, forward_tile>, attention_grid(a.tokens, forward_tile::rows, 1, a, batch),
               dim3(fma_threads), bytes, on.stream, a);
    }
    static void backward(const queue& on, int batch, const attention_operands<T>& a, const attention_gradients<T>& g) {
        using tile = backward_tile;
        constexpr std::size_t bytes = fma_shared_bytes(kernel::backward_keys, HeadSize, of_backward);
        static_assert(bytes <= Shared);
        launch(attention_fma_backward_keys<T, tile>, attention_grid(a.keys, tile::rows, g.parts, a, batch),
               dim3(fma_threads), bytes, on.stream, a, g);
        launch(attention_fma_backward_queries<T, tile>, attention_grid(a.tokens, tile::rows, 1, a, batch),
               dim3(fma_threads), bytes, on.stream, a, g);
    }

    static constexpr attention_launches<T> all{&forward, &backward, backward_tile::rows, backward_tile::columns};
};

/// The launches for a head size of up to most_fma_head_size. 16-bit scalars use these only if tensor cores cannot, and
/// always with the tiles of the largest heads.
template <class T, std::size_t Shared>
[[nodiscard]] attention_launches<T> fma_attention_for([[maybe_unused]] int head_size) {
    if constexpr (sizeof(T) == 4) {
        if (head_size <= 64) { return fma_attention<T, 64, Shared>::all; }
        if (head_size <= 128) { return fma_attention<T, 128, Shared>::all; }
    }
    return fma_attention<T, most_fma_head_size, Shared>::all;
}

/// The launches for a head size that is a multiple of 8, up to most_tensor_core_head_size: those of the next size that
/// has its own kernels, with zeros beyond the head. 16-bit scalars have kernels for every head size in the model zoo.
template <class P, std::size_t Shared>
[[nodiscard]] attention_launches<typename P::scalar> tensor_core_attention_for(int head_size) {
    if constexpr (sizeof(typename P::scalar) == 2) {
        if (head_size <= 40) { return tensor_core_attention<P, 40, Shared>::all; }
        if (head_size <= 64) { return tensor_core_attention<P, 64, Shared>::all; }
        if (head_size <= 72) { return tensor_core_attention<P, 72, Shared>::all; }
        if (head_size <= 80) { return tensor_core_attention<P, 80, Shared>::all; }
        if (head_size <= 88) { return tensor_core_attention<P, 88, Shared>::all; }
        if (head_size <= 128) { return tensor_core_attention<P, 128, Shared>::all; }
        return head_size <= 160 ? tensor_core_attention<P, 160, Shared>::all
                                : tensor_core_attention<P, 256, Shared>::all;
    } else {
        if (head_size <= 64) { return tensor_core_attention<P, 64, Shared>::all; }
        if (head_size <= 88) { return tensor_core_attention<P, 88, Shared>::all; }
        return head_size <= 128 ? tensor_core_attention<P, 128, Shared>::all
                                : tensor_core_attention<P, 160, Shared>::all;
    }
}

} // namespace pulse::cuda
