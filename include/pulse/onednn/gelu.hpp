#pragma once

#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::host {

/// What the normal distribution has beyond |x|, to about one unit in the last place of 1; `exponential` becomes
/// e^(-x^2 / 2).
///
/// erfc(z) e^(z^2) for z = |x| / sqrt(2) is a polynomial of degree 9 in t = 1 / (1 + 0.4 z), interpolated at the
/// Chebyshev nodes of z in [0, 9.5] (relative error 9e-8; the exponential is at the end of its range beyond).
template <int W>
[[gnu::always_inline]] inline floats<W> normal_tail(const floats<W>& x, floats<W>& exponential) noexcept {
    const floats<W> magnitude = x < 0.0F ? -x : x;
    const floats<W> exponent = x * x * -0.5F;
    exponential = exponent < -87.3F ? floats<W>{} : bounded_exp<W>(exponent);
    const floats<W> t = 1.0F / (1.0F + 0.282842712F * magnitude);
    floats<W> p = t * 0.0373838343F - 0.121834664F;
    p = p * t + 0.0465339112F;
    p = p * t + 0.1298884F;
    p = p * t + 0.0514787241F;
    p = p * t + 0.205131156F;
    p = p * t + 0.198966053F;
    p = p * t + 0.226841088F;
    p = p * t + 0.225611533F;
    return p * t * (0.5F * exponential);
}

template <int W>
[[gnu::always_inline]] inline floats<W> gelu_of(const floats<W>& x) noexcept {
    floats<W> exponential;
    const floats<W> tail = normal_tail<W>(x, exponential);
    return x * (x > 0.0F ? 1.0F - tail : tail);
}

/// d/dx of gelu: Phi(x) + x phi(x).
template <int W>
[[gnu::always_inline]] inline floats<W> gelu_slope(const floats<W>& x) noexcept {
    floats<W> exponential;
    const floats<W> tail = normal_tail<W>(x, exponential);
    return (x > 0.0F ? 1.0F - tail : tail) + x * exponential * 0.398942280F;
}

/// y = gelu(x); y may be x.
inline void gelu(int threads, std::int64_t n, const float* x, float* y) {
    for_elements(threads, n, [=]<int W>(std::int64_t i) { store<W>(gelu_of<W>(load<W>(x + i)), y + i); });
}

/// dx = dy * d gelu(x) / dx, or added to dx; dx may be dy.
inline void gelu_backward(int threads, std::int64_t n, const float* x, const float* dy, float* dx, into how) {
    const bool adds = how == into::add;
    for_elements(threads, n, [=]<int W>(std::int64_t i) {
        const floats<W> d = load<W>(dy + i) * gelu_slope<W>(load<W>(x + i));
        store<W>(adds ? load<W>(dx + i) + d : d, dx + i);
    });
}

/// y [rows][features] = value * gelu(gate) of x [rows][values, gates].
inline void geglu(int threads, std::int64_t rows, int features, const float* x, float* y) {
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        const float* const value = x + 2 * r * features;
        float* const target = y + r * features;
        for_lanes(0, features, [=]<int W>(std::int64_t c) {
            store<W>(load<W>(value + c) * gelu_of<W>(load<W>(value + features + c)), target + c);
        });
    });
}

inline void geglu_backward(int threads, std::int64_t rows, int features, const float* x, const float* dy, float* dx) {
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        const float* const value = x + 2 * r * features;
        const float* const gradient = dy + r * features;
        float* const target = dx + 2 * r * features;
        for_lanes(0, features, [=]<int W>(std::int64_t c) {
            const floats<W> gate = load<W>(value + features + c);
            const floats<W> g = load<W>(gradient + c);
            floats<W> exponential;
            const floats<W> tail = normal_tail<W>(gate, exponential);
            const floats<W> share = gate > 0.0F ? 1.0F - tail : tail;
            store<W>(g * (gate * share), target + c);
            store<W>(g * load<W>(value + c) * (share + gate * exponential * 0.398942280F), target + features + c);
        });
    });
}

} // namespace pulse::host
