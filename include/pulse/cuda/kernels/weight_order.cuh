#pragma once

#include <cstdint>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>

namespace pulse::cuda {

/// Some input channels of a convolution's weight, in the checkpoint's order and in cuDNN's.
///
/// The checkpoint's is [out][in][taps], with the taps of the window in rows; cuDNN's is [out][taps][in], packed.
struct weight_block {
    int out_channels{};
    int all_channels{}; ///< input channels of the whole weight
    int first{};        ///< of the block, among them
    int channels{};     ///< of the block
    int taps{};         ///< of the window

    [[nodiscard]] std::int64_t elements() const { return std::int64_t{out_channels} * taps * channels; }
    [[nodiscard]] bool operator==(const weight_block&) const = default;
};

namespace kernels {

inline constexpr int weight_tile = 64; ///< channels that a block of threads turns at once

/// One output and one tile of channels, through shared memory so that both sides are read and written in rows. Into
/// cuDNN's order, or, with `Back`, added to the checkpoint's.
template <class From, class To, bool Back>
__global__ void reorder_weight(weight_block s, const From* from, To* to) {
    float* const tile = shared_memory<float>();
    const int o = static_cast<int>(blockIdx.x);
    const int begin = static_cast<int>(blockIdx.y) * weight_tile;
    const int here = s.channels - begin < weight_tile ? s.channels - begin : weight_tile;
    const std::int64_t plain =
        (static_cast<std::int64_t>(o) * s.all_channels + s.first + begin) * s.taps; // + channel * taps + tap
    const std::int64_t packed =
        static_cast<std::int64_t>(o) * s.taps * s.channels + begin; // + tap * channels + channel
    const int step = static_cast<int>(blockDim.x);
    if constexpr (Back) {
        for (int i = static_cast<int>(threadIdx.x); i < here * s.taps; i += step) {
            tile[(i % here) * s.taps + i / here] =
                to_float(from[packed + static_cast<std::int64_t>(i / here) * s.channels + i % here]);
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < here * s.taps; i += step) { to[plain + i] += tile[i]; }
    } else {
        for (int i = static_cast<int>(threadIdx.x); i < here * s.taps; i += step) {
            tile[i] = to_float(from[plain + i]);
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < here * s.taps; i += step) {
            to[packed + static_cast<std::int64_t>(i / here) * s.channels + i % here] =
                from_float<To>(tile[(i % here) * s.taps + i / here]);
        }
    }
}

} // namespace kernels

/// Writes a block of a weight in cuDNN's order. Moves 2 e bytes per element at least, once per change of the weights.
template <class T>
void pack_weight(const queue& on, const weight_block& s, const T* weight, T* packed) {
    const dim3 grid(static_cast<unsigned>(s.out_channels),
                    static_cast<unsigned>((s.channels + kernels::weight_tile - 1) / kernels::weight_tile));
    launch(kernels::reorder_weight<T, T, false>, grid, dim3(256),
           sizeof(float) * static_cast<std::size_t>(kernels::weight_tile * s.taps), on.stream, s, weight, packed);
}

/// Adds a gradient in cuDNN's order to a block of a gradient in the checkpoint's. Moves e + 8 bytes per element.
template <class T>
void add_packed_gradient(const queue& on, const weight_block& s, const T* packed, float* dweight) {
    const dim3 grid(static_cast<unsigned>(s.out_channels),
                    static_cast<unsigned>((s.channels + kernels::weight_tile - 1) / kernels::weight_tile));
    launch(kernels::reorder_weight<T, float, true>, grid, dim3(256),
           sizeof(float) * static_cast<std::size_t>(kernels::weight_tile * s.taps), on.stream, s, packed, dweight);
}

} // namespace pulse::cuda
