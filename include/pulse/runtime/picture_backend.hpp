#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// Operations that forward-only networks of pictures need besides a backend; a user's backend that only trains may omit
/// them. Pictures are [batch][pixels][channels].
///
/// - group_norm_statistics: writes statistics [batch][groups][2] (mean, 1/sqrt(var + eps)) of one source, as group_norm
///   does.
/// - group_norm_rows: what group_norm writes, for `rows` rows of `width` pixels of one sample, from statistics
///   [groups][2] of the whole picture; rows of y start y_stride elements apart. This normalises a picture piece by
///   piece with statistics of the whole; shape.pixels is not read.
/// - posterior: z[pixel][channel] = factor (mean + exp(logvar / 2) noise) of moments [pixel][mean, logvar][channel],
///   logvar clamped to [-30, 20] (diffusers' DiagonalGaussianDistribution); noise as z, the factor a float or wider.
template <class B>
concept picture_backend = backend<B> &&
    requires(B& b, const typename B::scalar* x, typename B::scalar* y, const typename B::accumulator* a,
             typename B::accumulator* sums, const group_norm_shape& norm, int count, std::int64_t n, float factor) {
    // batch, x, statistics
    b.group_norm_statistics(norm, count, x, sums);
    // rows, width, x, gamma, beta, statistics, y, y_stride
    b.group_norm_rows(norm, count, count, x, x, x, a, y, n);
    // pixels, channels of z, factor, moments, noise, z
    b.posterior(n, count, factor, x, x, y);
};

} // namespace pulse
