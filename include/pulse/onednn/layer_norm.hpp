#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// LayerNorm with features along the lanes. Written by hand because oneDNN's stores the variance, not its inverse root,
/// and its backward primitive can add neither to dx nor to the affine gradients.
///
/// Workers take rows in blocks whose bounds do not depend on the number of threads. The variance is computed from
/// centred values. Affine gradients are summed in float inside a block and in double over blocks.
class layer_norm_rows {
public:
    static constexpr std::int64_t block = 64;

    /// Floats of workspace for the backward pass: the affine gradients of each block.
    [[nodiscard]] static std::int64_t workspace(const layer_norm_shape& s, std::int64_t rows) noexcept {
        return blocks(rows) * 2 * s.features;
    }

    /// Writes y [rows][features] and statistics [rows][2].
    static void forward(int threads, const layer_norm_shape& s, std::int64_t rows, const float* x, const float* gamma,
                        const float* beta, float* y, float* statistics) {
        const int n = s.features;
        for_rows(threads, rows, [=](std::int64_t, std::int64_t r) {
            const float* const row = x + r * n;
            float* const target = y + r * n;
            const float mean = sum(n, [=]<int W>(std::int64_t c) { return load<W>(row + c); }) / static_cast<float>(n);
            const float squares = sum(n, [=]<int W>(std::int64_t c) {
                const floats<W> d = load<W>(row + c) - mean;
                return floats<W>{d * d};
            });
            const auto inverse = static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares) / n + s.epsilon));
            statistics[2 * r] = mean;
            statistics[2 * r + 1] = inverse;
            for_lanes(0, n, [=]<int W>(std::int64_t c) {
                store<W>((load<W>(row + c) - mean) * inverse * load<W>(gamma + c) + load<W>(beta + c), target + c);
            });
        });
    }

    /// y = gamma x / sqrt(mean(x^2) + eps), RMSNorm.
    static void forward_rms(int threads, const layer_norm_shape& s, std::int64_t rows, const float* x,
                            const float* gamma, float* y) {
        const int n = s.features;
        for_rows(threads, rows, [=](std::int64_t, std::int64_t r) {
            const float* const row = x + r * n;
            float* const target = y + r * n;
            const float squares =
                sum(n, [=]<int W>(std::int64_t c) { return floats<W>{load<W>(row + c) * load<W>(row + c)}; });
            const auto inverse = static_cast<float>(1.0 / std::sqrt(static_cast<double>(squares) / n + s.epsilon));
            for_lanes(0, n, [=]<int W>(std::int64_t c) {
                store<W>(load<W>(row + c) * inverse * load<W>(gamma + c), target + c);
            });
        });
    }

    /// Writes or adds to dx, dgamma and dbeta; `work` is workspace(s, rows).
    static void backward(int threads, const layer_norm_shape& s, std::int64_t rows, const float* x, const float* gamma,
                         const float* statistics, const float* dy, float* dx, gradient_place<float> dgamma,
                         gradient_place<float> dbeta, into how, float* work) {
        const int n = s.features;
        const bool adds = how == into::add;
        std::fill(work, work + workspace(s, rows), 0.0F);
        for_rows(threads, rows, [=](std::int64_t b, std::int64_t r) {
            const float* const row = x + r * n;
            const float* const gradient = dy + r * n;
            float* const target = dx + r * n;
            float* const slopes = work + b * 2 * n;
            float* const shifts = slopes + n;
            const float mean = statistics[2 * r];
            const float inverse = statistics[2 * r + 1];
            const float offset = inverse / static_cast<float>(n) * sum(n, [=]<int W>(std::int64_t c) {
                                     return floats<W>{load<W>(gradient + c) * load<W>(gamma + c)};
                                 });
            const float product = inverse / static_cast<float>(n) * sum(n, [=]<int W>(std::int64_t c) {
                                      return floats<W>{load<W>(gradient + c) * load<W>(gamma + c) *
                                                       ((load<W>(row + c) - mean) * inverse)};
                                  });
            for_lanes(0, n, [=]<int W>(std::int64_t c) {
                const floats<W> g = load<W>(gradient + c);
                const floats<W> normal = (load<W>(row + c) - mean) * inverse;
                store<W>(load<W>(slopes + c) + g * normal, slopes + c);
                store<W>(load<W>(shifts + c) + g, shifts + c);
                const floats<W> d = g * load<W>(gamma + c) * inverse - offset - normal * product;
                store<W>(adds ? load<W>(target + c) + d : d, target + c);
            });
        });
        if (!dgamma.wanted()) { return; }
        float* const to_slope = dgamma.begun(n);
        float* const to_shift = dbeta.begun(n);
        for (int c = 0; c != n; ++c) {
            double slope = 0.0;
            double shift = 0.0;
            for (std::int64_t b = 0; b != blocks(rows); ++b) {
                slope += static_cast<double>(work[b * 2 * n + c]);
                shift += static_cast<double>(work[b * 2 * n + n + c]);
            }
            to_slope[c] += static_cast<float>(slope);
            to_shift[c] += static_cast<float>(shift);
        }
    }

private:
    [[nodiscard]] static std::int64_t blocks(std::int64_t rows) noexcept { return (rows + block - 1) / block; }

    /// Calls f(block, row) for every row.
    template <class F>
    static void for_rows(int threads, std::int64_t rows, F f) {
        parallel_for(threads, blocks(rows), [=](int, std::int64_t b) {
            for (std::int64_t r = b * block; r != std::min(rows, (b + 1) * block); ++r) { f(b, r); }
        });
    }
    /// The sum of f.operator()<W>(c) over all lanes of all vectors of [0, n).
    template <class F>
    [[gnu::always_inline]] static float sum(int n, F f) noexcept {
        floats<widest> sums[4]{};
        std::int64_t c = 0;
        for (; c + 4 * widest <= n; c += 4 * widest) {
            repeat<4>([&](auto u) { sums[u] += f.template operator()<widest>(c + u * widest); });
        }
        float rest = 0.0F;
        for_lanes(c, n, [&]<int W>(std::int64_t i) { rest += sum_of<W>(f.template operator()<W>(i)); });
        return sum_of<widest>((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
    }
};

} // namespace pulse::onednn
