#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// Elements that one worker takes at a time; the bounds do not depend on the number of threads.
inline constexpr std::int64_t pointwise_block = 16384;

/// Calls f.operator()<W>(first) over [0, n), in blocks that run on `threads` threads.
template <class F>
void for_elements(int threads, std::int64_t n, F&& f) {
    parallel_for(threads, (n + pointwise_block - 1) / pointwise_block, [&](int, std::int64_t block) {
        for_lanes(block * pointwise_block, std::min(n, (block + 1) * pointwise_block), f);
    });
}

/// y += x.
inline void add(int threads, std::int64_t n, const float* x, float* y) {
    for_elements(threads, n, [=]<int W>(std::int64_t i) { store<W>(load<W>(y + i) + load<W>(x + i), y + i); });
}

/// y[row][c] += t[c], or = t[c], for `rows` rows of `channels`.
inline void add_row(std::int64_t rows, int channels, const float* t, float* y, into how = into::add) {
    for (std::int64_t r = 0; r != rows; ++r) {
        float* const row = y + r * channels;
        if (how == into::add) {
            for_lanes(0, channels,
                      [=]<int W>(std::int64_t c) { store<W>(load<W>(row + c) + load<W>(t + c), row + c); });
        } else {
            std::memcpy(row, t, static_cast<std::size_t>(channels) * sizeof(float));
        }
    }
}

/// t[c] = sum over rows of y[row][c], or added to t. Rows are summed in float by blocks of 64, blocks in double.
inline void sum_rows(std::int64_t rows, int channels, const float* y, float* t, into how) {
    for_lanes(0, channels, [=]<int W>(std::int64_t c) {
        double total[static_cast<std::size_t>(W)]{};
        for (std::int64_t first = 0; first < rows; first += 64) {
            const std::int64_t last = std::min(rows, first + 64);
            floats<W> sum{};
            for (std::int64_t r = first; r != last; ++r) { sum += load<W>(y + r * channels + c); }
            for (int l = 0; l != W; ++l) { total[l] += static_cast<double>(sum[l]); }
        }
        for (int l = 0; l != W; ++l) {
            const auto sum = static_cast<float>(total[l]);
            t[c + l] = how == into::add ? t[c + l] + sum : sum;
        }
    });
}

/// [rows][width][channels] -> [2 rows][2 width][channels]; rows counts the rows of all samples.
inline void upsample_nearest(int threads, std::int64_t rows, int width, int channels, const float* x, float* y) {
    const std::size_t pixel = static_cast<std::size_t>(channels) * sizeof(float);
    const std::int64_t in_row = std::int64_t{width} * channels;
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        float* const target = y + 4 * r * in_row;
        for (int column = 0; column != width; ++column) {
            const float* const from = x + r * in_row + std::int64_t{column} * channels;
            std::memcpy(target + std::int64_t{2} * column * channels, from, pixel);
            std::memcpy(target + (std::int64_t{2} * column + 1) * channels, from, pixel);
        }
        std::memcpy(target + 2 * in_row, target, 2 * pixel * static_cast<std::size_t>(width));
    });
}

/// The transpose of upsample_nearest: each pixel of dx is the sum of the four that copied it.
inline void upsample_nearest_backward(int threads, std::int64_t rows, int width, int channels, const float* dy,
                                      float* dx) {
    const std::int64_t in_row = std::int64_t{width} * channels;
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        for (int column = 0; column != width; ++column) {
            const float* const top = dy + 4 * r * in_row + std::int64_t{2} * column * channels;
            const float* const bottom = top + 2 * in_row;
            float* const target = dx + r * in_row + std::int64_t{column} * channels;
            for_lanes(0, channels, [=]<int W>(std::int64_t c) {
                store<W>((load<W>(top + c) + load<W>(top + channels + c)) +
                             (load<W>(bottom + c) + load<W>(bottom + channels + c)),
                         target + c);
            });
        }
    });
}

/// e[b] = (sin(t w_0), ..., cos(t w_0), ...), w_i = 10000^(-i / (features / 2 - shift)); cosines first when `flip`.
inline void sinusoid(int batch, int features, bool flip, double shift, const float* timesteps, float* e) {
    const int half = features / 2;
    for (int b = 0; b != batch; ++b) {
        float* const row = e + std::int64_t{b} * features;
        for (int i = 0; i != half; ++i) {
            const double angle = static_cast<double>(timesteps[b]) * std::exp(-std::log(10000.0) * i / (half - shift));
            row[flip ? half + i : i] = static_cast<float>(std::sin(angle));
            row[flip ? i : half + i] = static_cast<float>(std::cos(angle));
        }
    }
}

} // namespace pulse::onednn
