#pragma once

#include <cstdint>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::host {

/// x, or the nearest number of [-16, 16], beyond which GELU is x or 0 in every bit; NaN stays NaN.
template <int W>
[[gnu::always_inline]] inline floats<W> gelu_tanh_range(const floats<W>& x) noexcept {
    const floats<W> low = spread<W>(-16.0F);
    const floats<W> high = spread<W>(16.0F);
    const floats<W> above = low > x ? low : x;
    return high < above ? high : above;
}

/// What sigmoid(2 |u|) lacks of 1, with u = sqrt(2 / pi) (x + 0.044715 x^3): small, so that it keeps its digits. x is
/// in gelu_tanh_range; (1 + tanh(u)) / 2 is sigmoid(2 u).
template <int W>
[[gnu::always_inline]] inline floats<W> gelu_tanh_tail(const floats<W>& x) noexcept {
    const floats<W> magnitude = x < 0.0F ? -x : x;
    return sigmoid<W>(-magnitude * (1.59576912F + 0.0713548163F * x * x));
}

/// y = x (1 + tanh(u)) / 2; y may be x.
inline void gelu_tanh(int threads, std::int64_t n, const float* x, float* y) {
    for_elements(threads, n, [=]<int W>(std::int64_t i) {
        const floats<W> v = load<W>(x + i);
        const floats<W> tail = gelu_tanh_tail<W>(gelu_tanh_range<W>(v));
        store<W>(v * (v > 0.0F ? 1.0F - tail : tail), y + i);
    });
}

/// With s = (1 + tanh(u)) / 2, the slope is s + x s (1 - s) 2 du/dx; dx may be dy.
inline void gelu_tanh_backward(int threads, std::int64_t n, const float* x, const float* dy, float* dx, into how) {
    const bool adds = how == into::add;
    for_elements(threads, n, [=]<int W>(std::int64_t i) {
        const floats<W> v = gelu_tanh_range<W>(load<W>(x + i));
        const floats<W> tail = gelu_tanh_tail<W>(v);
        const floats<W> s = v > 0.0F ? 1.0F - tail : tail;
        const floats<W> slope = s + v * (tail * (1.0F - tail)) * (1.59576912F + 0.214064449F * v * v);
        const floats<W> d = load<W>(dy + i) * slope;
        store<W>(adds ? load<W>(dx + i) + d : d, dx + i);
    });
}

} // namespace pulse::host
