#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/layer_norm_backward.cuh>

namespace pulse::cuda {

/// The affine of a row, modulated by its sample: (xhat gamma + beta) (1 + scale) + shift. Gamma, beta and scale may be
/// null.
template <class T>
struct modulated_affine {
    const T* gamma;
    const T* beta;
    const T* scale;
    const T* shift;
    std::int64_t stride; ///< from one sample's scale and shift to the next one's
    divider tokens;

    template <int N>
    __device__ void load(std::int64_t row, int c, float (&slope)[N], float (&to)[N]) const {
        const std::int64_t at = tokens.quotient(static_cast<std::uint32_t>(row)) * stride + c;
        load_floats(shift + at, to);
        float factor[N];
        load_factor(at, factor);
        if (gamma == nullptr) {
#pragma unroll
            for (int i = 0; i < N; ++i) { slope[i] = factor[i]; }
            return;
        }
        load_floats(gamma + c, slope);
        float inner[N];
        load_floats(beta + c, inner);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            slope[i] *= factor[i];
            to[i] = fmaf(inner[i], factor[i], to[i]);
        }
    }
    template <int N>
    __device__ void load_slope(std::int64_t row, int c, float (&slope)[N]) const {
        load_factor(tokens.quotient(static_cast<std::uint32_t>(row)) * stride + c, slope);
        if (gamma == nullptr) { return; }
        float inner[N];
        load_floats(gamma + c, inner);
#pragma unroll
        for (int i = 0; i < N; ++i) { slope[i] *= inner[i]; }
    }
    /// 1 + scale.
    template <int N>
    __device__ void load_factor(std::int64_t at, float (&factor)[N]) const {
        if (scale == nullptr) {
#pragma unroll
            for (int i = 0; i < N; ++i) { factor[i] = 1.0f; }
            return;
        }
        load_floats(scale + at, factor);
#pragma unroll
        for (int i = 0; i < N; ++i) { factor[i] += 1.0f; }
    }
};

/// From the partial sums of the samples, [batch][splits][2][features] (dy * xhat, dy): dscale and dshift, and dgamma
/// and dbeta, written or added to. One thread per feature, for all samples.
template <class T>
__global__ void __launch_bounds__(128)
    adaptive_norm_affine_kernel(int features, int batch, int splits, modulated_affine<T> affine, const float* partial,
                                float* dgamma, float* dbeta, into how, T* dscale, T* dshift) {
    const int c = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= features) { return; }
    const float gamma = affine.gamma != nullptr ? to_float(affine.gamma[c]) : 1.0f;
    const float beta = affine.gamma != nullptr ? to_float(affine.beta[c]) : 0.0f;
    float all_products = 0.0f;
    float all_dy = 0.0f;
    for (int b = 0; b < batch; ++b) {
        const float* from = partial + std::int64_t{b} * splits * 2 * features + c;
        float product = 0.0f;
        float dy = 0.0f;
        for (int i = 0; i < splits; ++i, from += 2 * features) {
            product += from[0];
            dy += from[features];
        }
        const std::int64_t at = b * affine.stride + c;
        float factor[1];
        affine.load_factor(at, factor);
        all_products = fmaf(factor[0], product, all_products);
        all_dy = fmaf(factor[0], dy, all_dy);
        if (affine.scale != nullptr) { dscale[at] = from_float<T>(fmaf(gamma, product, beta * dy)); }
        dshift[at] = from_float<T>(dy);
    }
    if (dgamma != nullptr) {
        const bool adds = how == into::add;
        dgamma[c] = (adds ? dgamma[c] : 0.0f) + all_products;
        dbeta[c] = (adds ? dbeta[c] : 0.0f) + all_dy;
    }
}

inline void check_adaptive_norm(const adaptive_norm_shape& s, int batch) {
    if (batch < 1 || s.tokens < 1 || s.features < 1) {
        throw input_error("adaptive_norm: batch, tokens and features must be at least 1");
    }
    check_layer_norm({s.features}, std::int64_t{batch} * s.tokens);
}

/// y[b][t] = (xhat gamma + beta) (1 + scale[b]) + shift[b], xhat = (x - mean) / sqrt(var + epsilon) over the features
/// of a row (AdaLN of Peebles and Xie 2022).
///
/// x and y [batch][tokens][features], gamma and beta [features] or both null, scale (may be null) and shift [features]
/// per sample, s.stride apart, statistics [batch][tokens][2] (mean, 1/sqrt(var + epsilon)). Must move 2 e n bytes: x
/// and y once.
template <class T>
void adaptive_norm(const queue& on, const adaptive_norm_shape& s, int batch, const T* x, const T* gamma, const T* beta,
                   const T* scale, const T* shift, T* y, float* statistics) {
    check_adaptive_norm(s, batch);
    const modulated_affine<T> affine{gamma, beta, scale, shift, s.stride, divider(s.tokens)};
    const bool packs = is_packable<T>(s.features, x, gamma, beta, scale, shift, y) && s.stride % pack_size<T> == 0;
    normalise_rows(on, s.features, s.epsilon, std::int64_t{batch} * s.tokens, x, affine, y, statistics, packs);
}

/// Bytes of scratch of adaptive_norm_backward, on any device.
[[nodiscard]] inline std::size_t adaptive_norm_backward_scratch_bytes(const adaptive_norm_shape& s, int batch) {
    const std::int64_t splits = std::clamp(s.tokens / 8, 1, most_column_splits);
    return sizeof(float) * static_cast<std::size_t>(batch * splits * 2 * s.features);
}

/// Gradients of adaptive_norm: dx is written or added to, or written as the gradient plus the residual if that is not
/// null; dgamma and dbeta are both written or both added to; dscale[b] = sum over t of dy (xhat gamma + beta) and
/// dshift[b] = sum over t of dy are written, laid out like scale and shift. Gradients of null tensors are null. Must
/// move x, dy and dx once: 3 e n bytes (4 e n with a sum); reads x and dy twice. Scratch:
/// adaptive_norm_backward_scratch_bytes.
template <class T>
void adaptive_norm_backward(const queue& on, const adaptive_norm_shape& s, int batch, const T* x, const T* gamma,
                            const T* beta, const T* scale, const float* statistics, const T* dy, T* dx,
                            gradient_place<float> dgamma, gradient_place<float> dbeta, T* dscale, T* dshift, into how,
                            const T* residual = nullptr) {
    check_adaptive_norm(s, batch);
    auto* const partial = reinterpret_cast<float*>(on.scratch);
    const T* const before = residual != nullptr || how == into::write ? residual : dx;
    const layer_norm_gradient<T> d{s.features, s.tokens, x, nullptr, statistics, dy, dx, before, partial};
    const modulated_affine<T> affine{gamma, beta, scale, nullptr, s.stride, divider(s.tokens)};
    const bool packs = is_packable<T>(s.features, x, gamma, scale, dy, dx, before) && s.stride % pack_size<T> == 0;
    const std::int64_t rows = std::int64_t{batch} * s.tokens;
    const auto t = tile_columns(batch, s.tokens, s.features, packs ? pack_size<T> : 1, on.multiprocessors);
    with_lanes<T>(packs, [&]<int N>() {
        launch(layer_norm_affine_kernel<T, N>,
               dim3(static_cast<unsigned>(t.slabs * t.splits), static_cast<unsigned>(batch)),
               dim3(static_cast<unsigned>(t.threads())),
               sizeof(float) * N * (static_cast<std::size_t>(t.columns) * (t.rows + 1)), on.stream, t, d);
        launch(long_layer_norm_gradient_kernel<T, N, modulated_affine<T>>,
               dim3(static_cast<unsigned>((rows + row_warps - 1) / row_warps)), dim3(row_warps * 32), 0, on.stream, d,
               rows, affine);
    });
    launch(adaptive_norm_affine_kernel<T>, dim3(static_cast<unsigned>((s.features + 127) / 128)), dim3(128), 0,
           on.stream, s.features, batch, t.splits, affine, partial, dgamma.to, dbeta.to, dgamma.how, dscale, dshift);
}

} // namespace pulse::cuda
