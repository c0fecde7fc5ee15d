#pragma once

#include <cuda_runtime.h>

namespace pulse::cuda {

/// 1 / (1 + exp(-x)); within 5 units in the last place of float, and 1.2 |x| more below zero, as in __expf.
[[nodiscard]] __device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// d/dx of x * sigmoid(x).
[[nodiscard]] __device__ inline float silu_slope(float x) {
    const float s = sigmoid(x);
    return s * fmaf(x, 1.0f - s, 1.0f);
}

/// The normal distribution Phi at x, and exp(-x^2 / 2), from which it is computed.
struct normal_distribution {
    float phi;
    float bell;
};

/// Phi within 1e-7 of exact (Abramowitz and Stegun 1964, 7.1.26), without the cancellation of 1 + erf far below zero.
[[nodiscard]] __device__ inline normal_distribution normal_at(float x) {
    const float bell = __expf(-0.5f * x * x);
    const float t = __fdividef(1.0f, fmaf(0.3275911f * 0.70710678f, fabsf(x), 1.0f));
    float series = fmaf(1.061405429f, t, -1.453152027f);
    series = fmaf(series, t, 1.421413741f);
    series = fmaf(series, t, -0.284496736f);
    series = fmaf(series, t, 0.254829592f);
    const float tail = 0.5f * series * t * bell;
    return {x < 0.0f ? tail : 1.0f - tail, bell};
}

/// x * Phi(x), the exact form of GELU.
[[nodiscard]] __device__ inline float gelu_of(float x) { return x * normal_at(x).phi; }

/// d/dx of x * Phi(x): Phi(x) + x phi(x), with phi the density of the normal distribution.
[[nodiscard]] __device__ inline float gelu_slope(float x) {
    const normal_distribution at = normal_at(x);
    return fmaf(x * 0.39894228f, at.bell, at.phi);
}

/// (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which is a sigmoid: the tanh form's replacement for Phi in GELU.
[[nodiscard]] __device__ inline float tanh_tail(float x) {
    return sigmoid(2.0f * 0.79788456f * x * fmaf(0.044715f * x, x, 1.0f));
}

/// x times tanh_tail: GELU's approximation.
[[nodiscard]] __device__ inline float gelu_tanh_of(float x) { return x * tanh_tail(x); }

/// d/dx of x times tanh_tail.
[[nodiscard]] __device__ inline float gelu_tanh_slope(float x) {
    const float s = tanh_tail(x);
    const float bend = 2.0f * 0.79788456f * fmaf(3.0f * 0.044715f * x, x, 1.0f);
    return fmaf(x * s * (1.0f - s), bend, s);
}

} // namespace pulse::cuda
