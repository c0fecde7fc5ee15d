#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/activations.hpp>
#include <pulse/onednn/layer_norm.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/token_operations.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE void token_operations::layer_norm(const layer_norm_shape& s, std::int64_t rows, const float* x,
                                                    const float* gamma, const float* beta, float* y,
                                                    float* statistics) {
    detail::check_rows("layer_norm", rows, s.features);
    layer_norm_rows::forward(threads_, s, rows, x, gamma, beta, y, statistics);
}

PULSE_HOST_INLINE void token_operations::layer_norm_backward(const layer_norm_shape& s, std::int64_t rows,
                                                             const float* x, const float* gamma,
                                                             const float* statistics, const float* dy, float* dx,
                                                             gradient_place<float> dgamma, gradient_place<float> dbeta,
                                                             into how) {
    detail::check_rows("layer_norm_backward", rows, s.features);
    float* const work = affine_.reserve(layer_norm_rows::workspace(s, rows));
    layer_norm_rows::backward(threads_, s, rows, x, gamma, statistics, dy, dx, dgamma, dbeta, how, work);
}

PULSE_HOST_INLINE void token_operations::gelu(std::int64_t n, const float* x, float* y) {
    activate<gelu_at>(threads_, n, x, y);
}

PULSE_HOST_INLINE void token_operations::gelu_backward(std::int64_t n, const float* x, const float* dy, float* dx,
                                                       into how) {
    activate_backward<gelu_at>(threads_, n, x, dy, dx, how);
}

PULSE_HOST_INLINE void token_operations::geglu(std::int64_t rows, int features, const float* x, float* y) {
    detail::check_rows("geglu", rows, features);
    onednn::geglu(threads_, rows, features, x, y);
}

PULSE_HOST_INLINE void token_operations::geglu_backward(std::int64_t rows, int features, const float* x,
                                                        const float* dy, float* dx) {
    detail::check_rows("geglu_backward", rows, features);
    onednn::geglu_backward(threads_, rows, features, x, dy, dx);
}

PULSE_HOST_INLINE void token_operations::copy_rows(std::int64_t rows, std::int64_t n, const float* x,
                                                   std::int64_t x_stride, float* y, std::int64_t y_stride) {
    parallel_for(threads_, rows, [=](int, std::int64_t r) { std::copy_n(x + r * x_stride, n, y + r * y_stride); });
}

PULSE_HOST_INLINE void token_operations::add_resampled(const resample_shape& s, int batch, const float* x, float* y) {
    detail::check_grids("add_resampled", s, batch);
    parallel_for(threads_, std::int64_t{batch} * s.tokens(), [=](int, std::int64_t r) {
        float* const row = y + r * s.features;
        s.each_tap(static_cast<int>(r % s.tokens()), [=](int from, double weight) {
            const float* const of = x + std::int64_t{from} * s.features;
            for (int c = 0; c != s.features; ++c) { row[c] += static_cast<float>(weight) * of[c]; }
        });
    });
}

PULSE_HOST_INLINE void token_operations::resampled_sums(const resample_shape& s, int batch, const float* dy,
                                                        gradient_place<float> dx) {
    detail::check_grids("resampled_sums", s, batch);
    float* const sums = dx.begun(std::int64_t{s.from_tokens()} * s.features);
    constexpr int chunk = 128; // features of one worker, which no other thread adds to
    parallel_for(threads_, (s.features + chunk - 1) / chunk, [=](int, std::int64_t part) {
        const int first = static_cast<int>(part) * chunk;
        const int end = std::min(first + chunk, s.features);
        for (int b = 0; b != batch; ++b) {
            for (int to = 0; to != s.tokens(); ++to) {
                const float* const of = dy + (std::int64_t{b} * s.tokens() + to) * s.features;
                s.each_tap(to, [=](int from, double weight) {
                    float* const row = sums + std::int64_t{from} * s.features;
                    for (int c = first; c != end; ++c) { row[c] += static_cast<float>(weight) * of[c]; }
                });
            }
        }
    });
}

PULSE_HOST_INLINE void token_operations::patches_to_image(const patch_shape& s, int batch, const float* x, float* y) {
    detail::check_patches("patches_to_image", s, batch);
    for_strips(s, batch, [=](std::int64_t token_element, std::int64_t pixel, std::size_t bytes) {
        std::memcpy(y + pixel, x + token_element, bytes);
    });
}

PULSE_HOST_INLINE void token_operations::image_to_patches(const patch_shape& s, int batch, const float* x, float* y) {
    detail::check_patches("image_to_patches", s, batch);
    const std::int64_t sample = std::int64_t{s.tokens()} * s.features();
    for (int b = 0; b != batch; ++b) { std::fill_n(y + b * sample, std::int64_t{s.leading} * s.features(), 0.0F); }
    for_strips(s, batch, [=](std::int64_t token_element, std::int64_t pixel, std::size_t bytes) {
        std::memcpy(y + token_element, x + pixel, bytes);
    });
}

template <class F>
void token_operations::for_strips(const patch_shape& s, int batch, F f) {
    const std::int64_t strip = std::int64_t{s.patch} * s.channels;
    const auto bytes = static_cast<std::size_t>(strip) * sizeof(float);
    parallel_for(threads_, std::int64_t{batch} * s.rows, [&](int, std::int64_t r) {
        const std::int64_t token = r / s.rows * s.tokens() + s.leading + r % s.rows * s.columns;
        for (int y = 0; y != s.patch; ++y) {
            const std::int64_t row = (r * s.patch + y) * s.columns;
            for (int column = 0; column != s.columns; ++column) {
                f((token + column) * s.features() + y * strip, (row + column) * strip, bytes);
            }
        }
    });
}

} // namespace pulse::onednn
