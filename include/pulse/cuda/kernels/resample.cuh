#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::cuda {

/// A resample_shape on the device, with the number of samples that it is applied to.
struct resampled_grids {
    int from_rows;
    int from_columns;
    int rows;
    int columns;
    int leading;
    divider features;
    int batch;
    std::int64_t sample; ///< scalars per sample, on the other grid

    resampled_grids(const resample_shape& s, int samples) :
        from_rows{s.from_rows}, from_columns{s.from_columns}, rows{s.rows}, columns{s.columns}, leading{s.leading},
        features{s.features}, batch{samples}, sample{std::int64_t{s.tokens()} * s.features} {}

    /// As resample_shape::each_tap: the first tap of entry `to`, of `more` on an axis, and the entry's distance
    /// `beyond` the second tap. Integer arithmetic as far as possible.
    [[nodiscard]] static __device__ int first_tap(int count, int to, int more, float& beyond) {
        const int at = (2 * to + 1) * count - more; // in parts of 2 more
        const int below = (at >= 0 ? at : at - 2 * more + 1) / (2 * more);
        beyond = static_cast<float>(at - 2 * more * below) / static_cast<float>(2 * more);
        return below - 1;
    }
    [[nodiscard]] static __device__ float weight(float beyond, int tap) {
        const float x = fabsf(beyond - static_cast<float>(tap - 1));
        return x <= 1.0f ? (1.25f * x - 2.25f) * x * x + 1.0f : ((-0.75f * x + 3.75f) * x - 6.0f) * x + 3.0f;
    }
    [[nodiscard]] static __device__ int inside(int entry, int count) { return min(max(entry, 0), count - 1); }
    /// The weight of entry `from` in entry `to`.
    [[nodiscard]] static __device__ float weight_of(int from, int count, int to, int more) {
        float beyond;
        const int first = first_tap(count, to, more, beyond);
        float sum = 0.0f;
        for (int tap = 0; tap != 4; ++tap) { sum += inside(first + tap, count) == from ? weight(beyond, tap) : 0.0f; }
        return sum;
    }
};

/// A thread computes one scalar of a token of the other grid, for all samples.
template <class T>
struct resampled_scalars {
    const T* x;
    T* y;
    resampled_grids grids;

    [[nodiscard]] __device__ float read(std::uint32_t i) const {
        const divided at = divide(i, grids.features);
        const int token = static_cast<int>(at.quotient) - grids.leading;
        if (token < 0) { return to_float(x[i]); }
        float row_beyond;
        float column_beyond;
        const int row = grids.first_tap(grids.from_rows, token / grids.columns, grids.rows, row_beyond);
        const int column = grids.first_tap(grids.from_columns, token % grids.columns, grids.columns, column_beyond);
        float sum = 0.0f;
        for (int tap = 0; tap != 16; ++tap) {
            const int from = grids.inside(row + tap / 4, grids.from_rows) * grids.from_columns +
                             grids.inside(column + tap % 4, grids.from_columns) + grids.leading;
            sum += grids.weight(row_beyond, tap / 4) * grids.weight(column_beyond, tap % 4) *
                   to_float(x[std::int64_t{from} * grids.features.divisor + at.remainder]);
        }
        return sum;
    }
    __device__ void write(std::uint32_t i, float sum) const {
        for (int b = 0; b < grids.batch; ++b) {
            T& to = y[b * grids.sample + i];
            to = from_float<T>(to_float(to) + sum);
        }
    }
};

/// A thread computes one scalar of dx.
template <class T>
struct resampled_sum_scalars {
    const T* dy;
    gradient_place<float> dx;
    resampled_grids grids;

    [[nodiscard]] __device__ float read(std::uint32_t i) const {
        const divided at = divide(i, grids.features);
        const int token = static_cast<int>(at.quotient) - grids.leading;
        float sum = dx.how == into::add ? dx.to[i] : 0.0f;
        const auto add = [&](std::int64_t to, float weight) {
            for (int b = 0; b < grids.batch; ++b) {
                sum += weight * to_float(dy[b * grids.sample + to * grids.features.divisor + at.remainder]);
            }
        };
        if (token < 0) {
            add(at.quotient, 1.0f);
            return sum;
        }
        for (int r = 0; r < grids.rows; ++r) {
            const float of_row = grids.weight_of(token / grids.from_columns, grids.from_rows, r, grids.rows);
            if (of_row == 0.0f) { continue; }
            for (int c = 0; c < grids.columns; ++c) {
                const float both =
                    of_row * grids.weight_of(token % grids.from_columns, grids.from_columns, c, grids.columns);
                if (both != 0.0f) { add(grids.leading + std::int64_t{r} * grids.columns + c, both); }
            }
        }
        return sum;
    }
    __device__ void write(std::uint32_t i, float sum) const { dx.to[i] = sum; }
};

/// y[b] += x on the other grid: x [from_tokens][features], y [batch][tokens][features]. Must move 2 e n bytes for the n
/// scalars of y; each thread recomputes its weights, which suits positions, as there are few.
template <class T>
void add_resampled(const queue& on, const resample_shape& s, int batch, const T* x, T* y) {
    pulse::detail::check_grids("add_resampled", s, batch);
    const resampled_grids grids(s, batch);
    map_items(on, "add_resampled", grids.sample, resampled_scalars<T>{x, y, grids});
}
/// The transpose of add_resampled: dx [from_tokens][features] is written or added to, with samples in ascending order
/// at each place of the other grid.
template <class T>
void resampled_sums(const queue& on, const resample_shape& s, int batch, const T* dy, gradient_place<float> dx) {
    pulse::detail::check_grids("resampled_sums", s, batch);
    map_items(on, "resampled_sums", std::int64_t{s.from_tokens()} * s.features,
              resampled_sum_scalars<T>{dy, dx, resampled_grids(s, batch)});
}

} // namespace pulse::cuda
