#pragma once

#include <cstdint>
#include <string>

#include <pulse/core/separate.hpp>
#include <pulse/onednn/group_norm.hpp>
#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/picture_operations.hpp>
#include <pulse/runtime/backend.hpp>
#include <pulse/runtime/shape_checks.hpp>

namespace pulse::onednn {

PULSE_HOST_INLINE void picture_operations::group_norm_statistics(const group_norm_shape& s, int batch, const float* x,
                                                                 float* statistics) {
    check_norm("group_norm_statistics", s, batch, s.pixels);
    double* const sums = sums_.reserve(threads_ * group_norm_sample::sums(s));
    float* const constants = constants_.reserve(threads_ * group_norm_sample::constants(s));
    const std::int64_t elements = std::int64_t{s.pixels} * s.channels;
    parallel_for(threads_, batch, [&](int worker, std::int64_t b) {
        const group_norm_sample sample{s,
                                       x + b * elements,
                                       nullptr,
                                       nullptr,
                                       nullptr,
                                       sums + worker * group_norm_sample::sums(s),
                                       constants + worker * group_norm_sample::constants(s)};
        sample.measure(statistics + b * 2 * s.groups);
    });
}

PULSE_HOST_INLINE void picture_operations::group_norm_rows(const group_norm_shape& s, int rows, int width,
                                                           const float* x, const float* gamma, const float* beta,
                                                           const float* statistics, float* y, std::int64_t y_stride) {
    check_norm("group_norm_rows", s, rows, width);
    group_norm_shape row = s;
    row.pixels = width;
    float* const constants = constants_.reserve(group_norm_sample::constants(s));
    const auto sample = [&](std::int64_t r) {
        return group_norm_sample{row, x + r * width * s.channels, nullptr, gamma, beta, nullptr, constants};
    };
    sample(0).take(statistics);
    parallel_for(threads_, rows, [&](int, std::int64_t r) { sample(r).apply(y + r * y_stride); });
}

PULSE_HOST_INLINE void picture_operations::posterior(std::int64_t pixels, int channels, float factor,
                                                     const float* moments, const float* noise, float* z) {
    parallel_for(threads_, pixels, [=](int, std::int64_t p) {
        const float* const mean = moments + p * 2 * channels;
        for_lanes(0, channels, [&]<int W>(std::int64_t c) {
            floats<W> half = load<W>(mean + channels + c) * 0.5F;
            half = half < -15.0F ? spread<W>(-15.0F) : half;
            half = half > 10.0F ? spread<W>(10.0F) : half;
            const floats<W> drawn = exp<W>(half) * load<W>(noise + p * channels + c);
            store<W>((load<W>(mean + c) + drawn) * factor, z + p * channels + c);
        });
    });
}

PULSE_HOST_INLINE void picture_operations::check_norm(const char* operation, const group_norm_shape& s, int rows,
                                                      int pixels) {
    if (rows > 0 && pixels > 0 && s.channels > 0 && s.second_channels == 0 && s.groups > 0 &&
        s.channels % s.groups == 0) {
        return;
    }
    detail::refuse_shape(
        operation, std::to_string(s.groups) + " groups of " + std::to_string(s.channels) + " + " +
                       std::to_string(s.second_channels) + " channels, " + std::to_string(rows) + " rows of " +
                       std::to_string(pixels) +
                       " pixels; each must be at least 1 (second channels exactly 0), and groups must divide channels");
}

} // namespace pulse::onednn
