#pragma once

#include <cstdint>
#include <type_traits>

#include <pulse/onednn/lanes.hpp>
#include <pulse/onednn/parallel.hpp>
#include <pulse/onednn/pointwise.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::onednn {

/// An activation and its derivative at one point; the compiler drops the one that is not used.
template <int W>
struct activated {
    floats<W> value;
    floats<W> slope;
};

struct silu_at {
    template <int W>
    [[gnu::always_inline]] static activated<W> of(const floats<W>& x) noexcept {
        return {silu_of<W>(x), silu_slope<W>(x)};
    }
};

/// x Phi(x), with Phi the distribution function of the normal distribution.
struct gelu_at {
    template <int W>
    [[gnu::always_inline]] static activated<W> of(const floats<W>& x) noexcept {
        floats<W> exponential;
        const floats<W> tail = normal_tail<W>(x, exponential);
        const floats<W> share = x > 0.0F ? 1.0F - tail : tail;
        return {x * share, share + x * exponential * 0.398942280F};
    }

private:
    /// Upper tail of the normal distribution beyond |x|, to about one unit in the last place of 1; sets `exponential`
    /// to e^(-x^2 / 2).
    ///
    /// erfc(z) e^(z^2) for z = |x| / sqrt(2) is a polynomial of degree 9 in t = 1 / (1 + 0.4 z), interpolated at the
    /// Chebyshev nodes of z in [0, 9.5] (relative error 9e-8; the exponential is at the end of its range beyond).
    template <int W>
    [[gnu::always_inline]] static floats<W> normal_tail(const floats<W>& x, floats<W>& exponential) noexcept {
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
};

/// x s with s = (1 + tanh(u)) / 2 = sigmoid(2 u) and u = sqrt(2 / pi) (x + 0.044715 x^3); its slope is
/// s + x s (1 - s) 2 du/dx.
struct gelu_tanh_at {
    template <int W>
    [[gnu::always_inline]] static activated<W> of(const floats<W>& x) noexcept {
        // Beyond [-16, 16] GELU is x or 0 in every bit; NaN stays NaN.
        const floats<W> low = spread<W>(-16.0F);
        const floats<W> high = spread<W>(16.0F);
        const floats<W> above = low > x ? low : x;
        const floats<W> near = high < above ? high : above;
        // The distance of s from 0 or 1 is computed itself, so that it keeps its digits when it is small.
        const floats<W> magnitude = near < 0.0F ? -near : near;
        const floats<W> tail = sigmoid<W>(-magnitude * (1.59576912F + 0.0713548163F * near * near));
        const floats<W> s = near > 0.0F ? 1.0F - tail : tail;
        return {x * s, s + near * (tail * (1.0F - tail)) * (1.59576912F + 0.214064449F * near * near)};
    }
};

/// y = f(x); y may be x.
template <class Activation>
void activate(int threads, std::int64_t n, const float* x, float* y) {
    for_elements(threads, n,
                 [=]<int W>(std::int64_t i) { store<W>(Activation::template of<W>(load<W>(x + i)).value, y + i); });
}

/// dx = dy f'(x), or added to dx; dx may be dy.
template <class Activation>
void activate_backward(int threads, std::int64_t n, const float* x, const float* dy, float* dx, into how) {
    const auto run = [=](auto adds) { // one loop each for write and add
        for_elements(threads, n, [=]<int W>(std::int64_t i) {
            const floats<W> g = load<W>(dy + i);
            const floats<W> slope = Activation::template of<W>(load<W>(x + i)).slope;
            store<W>(adds ? load<W>(dx + i) + g * slope : g * slope, dx + i);
        });
    };
    if (how == into::add) {
        run(std::true_type{});
    } else {
        run(std::false_type{});
    }
}

/// y [rows][features] = value * gelu(gate) of x [rows][values, gates].
inline void geglu(int threads, std::int64_t rows, int features, const float* x, float* y) {
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        const float* const value = x + 2 * r * features;
        float* const target = y + r * features;
        for_lanes(0, features, [=]<int W>(std::int64_t c) {
            store<W>(load<W>(value + c) * gelu_at::of<W>(load<W>(value + features + c)).value, target + c);
        });
    });
}

inline void geglu_backward(int threads, std::int64_t rows, int features, const float* x, const float* dy, float* dx) {
    parallel_for(threads, rows, [=](int, std::int64_t r) {
        const float* const value = x + 2 * r * features;
        const float* const gradient = dy + r * features;
        float* const target = dx + 2 * r * features;
        for_lanes(0, features, [=]<int W>(std::int64_t c) {
            const activated<W> gate = gelu_at::of<W>(load<W>(value + features + c));
            const floats<W> g = load<W>(gradient + c);
            store<W>(g * gate.value, target + c);
            store<W>(g * load<W>(value + c) * gate.slope, target + features + c);
        });
    });
}

} // namespace pulse::onednn
