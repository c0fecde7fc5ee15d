#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

template <class T, int N>
struct row_copy {
    const T* x;
    std::int64_t x_stride;
    T* y;
    std::int64_t y_stride;
    divider row_accesses;

    [[nodiscard]] __device__ lanes<T, N> read(std::uint32_t i) const {
        const divided at = divide(i, row_accesses);
        return lanes<T, N>::load(x + at.quotient * x_stride + std::int64_t{at.remainder} * N);
    }
    __device__ void write(std::uint32_t i, const lanes<T, N>& of) const {
        const divided at = divide(i, row_accesses);
        of.store(y + at.quotient * y_stride + std::int64_t{at.remainder} * N);
    }
};

/// Copies `rows` rows of n scalars from x to y, with a stride for each in scalars. Must move 2 e rows n bytes.
template <class T>
void copy_rows(const queue& on, std::int64_t rows, std::int64_t n, const T* x, std::int64_t x_stride, T* y,
               std::int64_t y_stride) {
    if (n == 0) { return; }
    with_lanes<T>(
        is_packable<T>(n, x, y) && x_stride % pack_size<T> == 0 && y_stride % pack_size<T> == 0, [&]<int N>() {
            map_items(on, "copy_rows", rows * n / N, row_copy<T, N>{x, x_stride, y, y_stride, divider(n / N)});
        });
}

template <class T, int N>
struct row_fill {
    T* y;
    std::int64_t y_stride;
    float value;
    divider row_accesses;

    struct item {};
    [[nodiscard]] __device__ item read(std::uint32_t) const { return {}; }
    __device__ void write(std::uint32_t i, const item&) const {
        const divided at = divide(i, row_accesses);
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) { made[n] = value; }
        lanes<T, N>::of(made).store(y + at.quotient * y_stride + std::int64_t{at.remainder} * N);
    }
};

/// y = value for n scalars in each of `rows` rows, y_stride scalars apart. Must move e rows n bytes.
template <class T>
void fill_rows(const queue& on, std::int64_t rows, std::int64_t n, float value, T* y, std::int64_t y_stride) {
    if (n == 0) { return; }
    with_lanes<T>(is_packable<T>(n, y) && y_stride % pack_size<T> == 0, [&]<int N>() {
        map_items(on, "fill_rows", rows * n / N, row_fill<T, N>{y, y_stride, value, divider(n / N)});
    });
}

/// y = value over n scalars. Must move e n bytes.
template <class T>
void fill(const queue& on, std::int64_t n, float value, T* y) {
    const std::int64_t whole = is_pack_aligned(y) ? n / pack_size<T> * pack_size<T> : 0;
    fill_rows(on, 1, whole, value, y, 0);
    fill_rows(on, 1, n - whole, value, y + whole, 0);
}

/// y[b][p][c] += t[b][c].
template <class T, int N>
struct sample_addition {
    const T* t;
    T* y;
    int channels;
    divider sample_accesses;
    divider pixel_accesses;

    struct item {
        lanes<T, N> y;
        lanes<T, N> t;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const divided at = divide(i, sample_accesses);
        const std::uint32_t channel = divide(at.remainder, pixel_accesses).remainder * N;
        return {lanes<T, N>::load(y + std::int64_t{i} * N),
                lanes<T, N>::load(t + std::int64_t{at.quotient} * channels + channel)};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) { made[n] = of.y[n] + of.t[n]; }
        lanes<T, N>::of(made).store(y + std::int64_t{i} * N);
    }
};

/// y[b][p][c] += t[b][c] over [batch][pixels][channels]. Must move y twice: 2 e n bytes.
template <class T>
void add_per_sample(const queue& on, int batch, int pixels, int channels, const T* t, T* y) {
    if (batch < 1 || pixels < 1 || channels < 1) {
        throw input_error("add_per_sample: batch, pixels and channels must be at least 1");
    }
    const std::int64_t sample = std::int64_t{pixels} * channels;
    with_lanes<T>(is_packable<T>(channels, t, y), [&]<int N>() {
        map_items(on, "add_per_sample", batch * sample / N,
                  sample_addition<T, N>{t, y, channels, divider(sample / N), divider(channels / N)});
    });
}

/// Places of a pixel of [height][width][c] in [2 height][2 width][c], by accesses of N scalars: the first of its four,
/// and the one below it.
template <int N>
struct doubled_pixels {
    int width;
    int channels;
    divider row_accesses; ///< of the smaller image
    divider pixel_accesses;

    /// Offset in the larger image of access i of the smaller one, in scalars.
    [[nodiscard]] __device__ std::int64_t first(std::uint32_t i) const {
        const divided row = divide(i, row_accesses);
        const divided pixel = divide(row.remainder, pixel_accesses);
        return (std::int64_t{row.quotient} * 4 * width + pixel.quotient * 2) * channels +
               std::int64_t{pixel.remainder} * N;
    }
    /// Offset from the first of the four to the one below it.
    [[nodiscard]] __device__ std::int64_t below() const { return std::int64_t{2} * width * channels; }
};

template <class T, int N>
struct upsample_lanes {
    const T* x;
    T* y;
    doubled_pixels<N> place;

    [[nodiscard]] __device__ lanes<T, N> read(std::uint32_t i) const {
        return lanes<T, N>::load(x + std::int64_t{i} * N);
    }
    __device__ void write(std::uint32_t i, const lanes<T, N>& of) const {
        T* const to = y + place.first(i);
        of.store(to);
        of.store(to + place.channels);
        of.store(to + place.below());
        of.store(to + place.below() + place.channels);
    }
};

template <class T, int N>
struct upsample_gradient_lanes {
    const T* dy;
    T* dx;
    doubled_pixels<N> place;

    struct item {
        lanes<T, N> four[4];
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const T* const from = dy + place.first(i);
        return {{lanes<T, N>::load(from), lanes<T, N>::load(from + place.channels),
                 lanes<T, N>::load(from + place.below()), lanes<T, N>::load(from + place.below() + place.channels)}};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) { made[n] = (of.four[0][n] + of.four[1][n]) + (of.four[2][n] + of.four[3][n]); }
        lanes<T, N>::of(made).store(dx + std::int64_t{i} * N);
    }
};

template <int N>
[[nodiscard]] doubled_pixels<N> double_pixels(int width, int channels) {
    return {width, channels, divider(std::int64_t{width} * channels / N), divider(channels / N)};
}

/// Doubles height and width of [batch][height][width][channels]: every pixel four times. Must move x once and y, which
/// is four times as large: 5 e n bytes for the n scalars of x.
template <class T>
void upsample_nearest(const queue& on, int batch, int height, int width, int channels, const T* x, T* y) {
    if (batch < 1 || height < 1 || width < 1 || channels < 1) {
        throw input_error("upsample_nearest: batch, height, width and channels must be at least 1");
    }
    const std::int64_t n = std::int64_t{batch} * height * width * channels;
    with_lanes<T>(is_packable<T>(channels, x, y), [&]<int N>() {
        map_items(on, "upsample_nearest", n / N, upsample_lanes<T, N>{x, y, double_pixels<N>(width, channels)});
    });
}
/// dx = the sum of dy's four pixels. Must move 5 e n bytes for the n scalars of dx.
template <class T>
void upsample_nearest_backward(const queue& on, int batch, int height, int width, int channels, const T* dy, T* dx) {
    if (batch < 1 || height < 1 || width < 1 || channels < 1) {
        throw input_error("upsample_nearest_backward: batch, height, width and channels must be at least 1");
    }
    const std::int64_t n = std::int64_t{batch} * height * width * channels;
    with_lanes<T>(is_packable<T>(channels, dy, dx), [&]<int N>() {
        map_items(on, "upsample_nearest_backward", n / N,
                  upsample_gradient_lanes<T, N>{dy, dx, double_pixels<N>(width, channels)});
    });
}

} // namespace pulse::cuda
