#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/block_sums.cuh>
#include <pulse/cuda/kernels/group_norm_tiling.cuh>
#include <pulse/cuda/kernels/lanes.cuh>

namespace pulse::cuda {

/// The input of every GroupNorm kernel: sources, affine, shape and layout.
template <class T>
struct group_norm_input {
    const T* xa{};
    const T* xb{};
    const T* gamma{};
    const T* beta{};
    int channels{};
    int all_channels{};
    int groups{};
    int size{}; ///< channels per group
    int pixels{};
    float epsilon{};
    bool silu{};
    group_norm_tiling tiling{};

    group_norm_input(const group_norm_shape& s, const group_norm_tiling& t, const T* xa_, const T* xb_, const T* gamma_,
                     const T* beta_) :
        xa{xa_},
        xb{xb_}, gamma{gamma_}, beta{beta_}, channels{s.channels},
        all_channels{s.all_channels()}, groups{s.groups}, size{s.all_channels() / s.groups}, pixels{s.pixels},
        epsilon{static_cast<float>(s.epsilon)}, silu{s.silu}, tiling{t} {}
};

/// Which slab, chunk and sample a block owns, and its thread's column and row.
struct group_norm_place {
    int sample;
    int split;
    int first_group;
    int last_group; ///< one past
    int first_channel;
    int last_channel; ///< one past
    int first_pixel;
    int last_pixel; ///< one past
    int column;
    int row; ///< at tiling.rows or more, a thread only helps with sums

    template <class T>
    __device__ group_norm_place(const group_norm_input<T>& in, int block) {
        const group_norm_tiling& t = in.tiling;
        const int slab = block % t.slabs;
        split = block / t.slabs % t.splits;
        sample = block / t.slabs / t.splits;
        first_group = slab * t.slab_groups;
        last_group = min(in.groups, first_group + t.slab_groups);
        first_channel = first_group * in.size;
        last_channel = last_group * in.size;
        first_pixel = split * t.chunk;
        last_pixel = min(in.pixels, first_pixel + t.chunk);
        row = static_cast<int>(threadIdx.x) / t.columns;
        column = static_cast<int>(threadIdx.x) % t.columns;
    }

    [[nodiscard]] __device__ int chunk_pixels() const { return last_pixel - first_pixel; }

    /// Number of pixels that this thread walks: first_pixel + row, and every rows-th after it.
    [[nodiscard]] __device__ int walked(int rows) const {
        const int left = chunk_pixels() - row;
        return row >= rows || left <= 0 ? 0 : (left - 1) / rows + 1;
    }
};

/// One thread's lanes of channels in a tensor: their address at the thread's first pixel, and the stride to the next.
template <class T>
struct pixel_walk {
    T* at{};
    std::int64_t step{};

    /// The walk over `channel` of a tensor with `width` channels per pixel.
    __device__ pixel_walk(T* tensor, int pixels, int width, int channel, const group_norm_place& place, int rows) :
        at{tensor + (std::int64_t{place.sample} * pixels + place.first_pixel + place.row) * width + channel},
        step{std::int64_t{rows} * width} {}

    [[nodiscard]] __device__ T* operator[](int i) const { return at + i * step; }
};

/// The walk over `channel` of the concatenation, in the source that holds it.
template <class T>
[[nodiscard]] __device__ pixel_walk<T> walk_sources(T* a, T* b, int channels, int all_channels, int pixels, int channel,
                                                    const group_norm_place& place, int rows) {
    return channel < channels ? pixel_walk<T>(a, pixels, channels, channel, place, rows)
                              : pixel_walk<T>(b, pixels, all_channels - channels, channel - channels, place, rows);
}

/// The sums of a thread over its pixels, centred on the first, so that a large mean costs no digits: for n pixels, the
/// sum of squares is then at most n times the wanted one, whatever the values.
template <int N>
struct centred_sums {
    float centre[N];
    float sum[N];
    float squares[N];

    __device__ void start(const float (&first)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            centre[i] = first[i];
            sum[i] = 0.0f;
            squares[i] = 0.0f;
        }
    }
    template <class T>
    __device__ void add(const lanes<T, N>& x) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float d = x[i] - centre[i];
            sum[i] += d;
            squares[i] = fmaf(d, d, squares[i]);
        }
    }
};

/// The mean of a set of numbers and the sum of squares about it.
struct moments {
    float mean;
    float squares;
};

struct moments_of_part {
    moments of;
    float numbers; ///< size of the set
};

/// The moments of the union of the sets part(0), part(1), ... part(count - 1) with `total` numbers in all (Chan, Golub
/// and LeVeque 1983); called by one warp, with the result in every lane.
template <class F>
[[nodiscard]] __device__ moments union_of_warp(int count, float total, F part) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const float centre = part(0).of.mean;
    float sum = 0.0f;
    for (int i = lane; i < count; i += 32) {
        const moments_of_part one = part(i);
        sum = fmaf(one.numbers, one.of.mean - centre, sum);
    }
    const float mean = centre + sum_of_warp(sum) / total;
    float squares = 0.0f;
    for (int i = lane; i < count; i += 32) {
        const moments_of_part one = part(i);
        const float d = one.of.mean - mean;
        squares += fmaf(one.numbers * d, d, one.of.squares);
    }
    return {mean, sum_of_warp(squares)};
}

} // namespace pulse::cuda
