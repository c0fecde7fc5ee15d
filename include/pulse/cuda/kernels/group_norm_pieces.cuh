#pragma once

#include <cstdint>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/group_norm.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/launch.cuh>

namespace pulse::cuda {

/// Statistics from the moments of the chunks, one warp per group and sample.
template <class T>
__global__ void __launch_bounds__(128)
    group_norm_statistics_kernel(group_norm_input<T> in, int batch, const moments* partial, float* statistics) {
    const int row = static_cast<int>(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    if (row >= batch * in.groups) { return; }
    const moments whole = moments_of_group(in, partial, row / in.groups, row % in.groups);
    if (threadIdx.x % 32 == 0) {
        statistics[2 * row] = whole.mean;
        const float total = static_cast<float>(in.pixels) * static_cast<float>(in.size);
        statistics[2 * row + 1] = rsqrtf(whole.squares / total + in.epsilon);
    }
}

/// Computes group_norm's statistics of one source. Must read x once: e n bytes. Scratch: group_norm_scratch_bytes.
/// Throws input_error for an invalid shape.
template <class T>
void group_norm_statistics(const queue& on, const group_norm_shape& s, int batch, const T* x, float* statistics) {
    check_group_norm(s, batch);
    const auto t = tile_group_norm(s, batch, group_norm_width<T>(s, x), sizeof(T), 0, on.multiprocessors);
    const group_norm_input<T> in(s, t, x, nullptr, nullptr, nullptr);
    auto* const partial = reinterpret_cast<moments*>(on.scratch);
    const dim3 grid(static_cast<unsigned>(t.blocks(batch)));
    const dim3 block(static_cast<unsigned>(t.threads()));
    with_lanes<T>(t.width != 1, [&]<int N>() {
        launch(group_norm_moments_kernel<T, N>, grid, block, t.shared_bytes(), on.stream, in, partial);
    });
    constexpr int warps = 4;
    launch(group_norm_statistics_kernel<T>, dim3(static_cast<unsigned>((batch * s.groups + warps - 1) / warps)),
           dim3(warps * 32), 0, on.stream, in, batch, partial, statistics);
}

template <class T, int N>
struct normalised_rows {
    const T* x;
    const T* gamma;
    const T* beta;
    const float* statistics;
    T* y;
    std::int64_t y_stride;
    bool silu;
    divider row_accesses;
    divider pixel_accesses;
    divider group; ///< channels per group

    [[nodiscard]] __device__ lanes<T, N> read(std::uint32_t i) const {
        return lanes<T, N>::load(x + std::int64_t{i} * N);
    }
    __device__ void write(std::uint32_t i, const lanes<T, N>& of) const {
        const divided row = divide(i, row_accesses);
        const std::uint32_t channel = divide(row.remainder, pixel_accesses).remainder * N;
        float slope[N];
        float shift[N];
        load_floats(gamma + channel, slope);
        load_floats(beta + channel, shift);
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const float* const known = statistics + 2 * group.quotient(channel + n);
            const float u = fmaf(of[n] - known[0], slope[n] * known[1], shift[n]);
            made[n] = silu ? u * sigmoid(u) : u;
        }
        lanes<T, N>::of(made).store(y + row.quotient * y_stride + std::int64_t{row.remainder} * N);
    }
};

/// Writes what group_norm would for `rows` rows of `width` pixels of one sample whose statistics [groups][2] are known;
/// rows of y begin y_stride scalars apart. Must move 2 e n bytes. Throws input_error for an invalid shape.
template <class T>
void group_norm_rows(const queue& on, const group_norm_shape& s, int rows, int width, const T* x, const T* gamma,
                     const T* beta, const float* statistics, T* y, std::int64_t y_stride) {
    group_norm_shape row = s;
    row.pixels = width;
    check_group_norm(row, rows);
    if (s.second_channels != 0) {
        throw input_error("group_norm_rows: second_channels must be 0, not " + std::to_string(s.second_channels));
    }
    const std::int64_t n = std::int64_t{width} * s.channels;
    with_lanes<T>(is_packable<T>(s.channels, x, gamma, beta, y) && y_stride % pack_size<T> == 0, [&]<int N>() {
        map_items(on, "group_norm_rows", rows * n / N,
                  normalised_rows<T, N>{x, gamma, beta, statistics, y, y_stride, s.silu, divider(n / N),
                                        divider(s.channels / N), divider(s.channels / s.groups)});
    });
}

} // namespace pulse::cuda
