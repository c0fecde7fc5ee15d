#pragma once

#include <cstdint>

#include <pulse/runtime/backend.hpp>

namespace pulse {

/// What networks of pictures that only run forward need besides a backend: one user's backend that trains need not have
/// it. Pictures are [batch][pixels][channels].
///
/// - group_norm_statistics: writes statistics [batch][groups][2] (mean, 1/sqrt(var + eps)) of one source, as group_norm
///   does.
/// - group_norm_rows: what group_norm writes, for `rows` rows of `width` pixels of one sample, from statistics
///   [groups][2] of the whole picture; rows of y begin y_stride elements apart. So a picture is normalised piece by
///   piece, by statistics that span it whole; shape.pixels is not read.
/// - posterior: z[pixel][channel] = factor (mean + exp(logvar / 2) noise) of moments [pixel][mean, logvar][channel],
///   logvar held to [-30, 20] (diffusers' DiagonalGaussianDistribution); noise as z. The factor is a float or more.
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
