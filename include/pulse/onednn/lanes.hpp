#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(PULSE_SEPARATE_HOST) && !defined(PULSE_COMPILING)
#error "pulse: vector widths depend on compiler flags, so only pulse::compiled_host may include this code"
#endif

namespace pulse::onednn {

/// W floats that the compiler keeps in vector registers of whatever width the target has.
template <int W>
struct lanes {
    // NOLINTBEGIN(modernize-use-using): an alias takes no attribute that depends on W
    typedef float floats __attribute__((vector_size(W * 4)));
    typedef std::int32_t ints __attribute__((vector_size(W * 4)));
    // NOLINTEND(modernize-use-using)
};

template <int W>
using floats = typename lanes<W>::floats;

/// Lanes of one vector register of the target. Wider vectors are not used: they have no settled calling convention.
#if defined(__AVX512F__)
inline constexpr int widest = 16;
#elif defined(__AVX__)
inline constexpr int widest = 8;
#else
inline constexpr int widest = 4;
#endif

template <int W>
[[gnu::always_inline]] inline floats<W> load(const float* from) noexcept {
    floats<W> v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <int W>
[[gnu::always_inline]] inline void store(const floats<W>& v, float* to) noexcept {
    std::memcpy(to, &v, sizeof v);
}

template <int W>
[[gnu::always_inline]] inline floats<W> spread(float value) noexcept {
    return floats<W>{} + value;
}

template <int W>
[[gnu::always_inline]] inline float sum_of(const floats<W>& v) noexcept {
    if constexpr (W == 1) {
        return v[0];
    } else {
        floats<W / 2> low;
        floats<W / 2> high;
        std::memcpy(&low, &v, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
        return sum_of<W / 2>(low + high);
    }
}

template <int W>
[[gnu::always_inline]] inline float greatest_of(const floats<W>& v) noexcept {
    if constexpr (W == 1) {
        return v[0];
    } else {
        floats<W / 2> low;
        floats<W / 2> high;
        std::memcpy(&low, &v, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof low, sizeof high);
        return greatest_of<W / 2>(low > high ? low : high);
    }
}

/// 2^n * p for the integer n in the low bits of t = n + 1.5 * 2^23.
template <int W>
[[gnu::always_inline]] inline floats<W> scaled(const floats<W>& p, const floats<W>& t) noexcept {
    typename lanes<W>::ints exponent;
    typename lanes<W>::ints bits;
    std::memcpy(&exponent, &t, sizeof t);
    std::memcpy(&bits, &p, sizeof p);
    bits += exponent << 23;
    floats<W> result;
    std::memcpy(&result, &bits, sizeof bits);
    return result;
}

/// e^x to about one unit in the last place for x between log(FLT_MIN) and log(FLT_MAX), e^bound beyond; NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of degree 6 for e^r (the coefficients of Cephes' expf), and n
/// added to the exponent.
template <int W>
[[gnu::always_inline]] inline floats<W> bounded_exp(const floats<W>& x) noexcept {
    const floats<W> lowest = spread<W>(-87.336544F);
    const floats<W> highest = spread<W>(88.722834F);
    const floats<W> a = lowest > x ? lowest : x;
    const floats<W> c = highest < a ? highest : a;
    const floats<W> t = c * 1.44269504F + 12582912.0F;
    const floats<W> n = t - 12582912.0F;
    const floats<W> r = (c - n * 0.693359375F) + n * 2.12194440e-4F;
    floats<W> p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    return scaled<W>(p, t);
}

/// e^x to about one unit in the last place; 0 where e^x would be denormal, infinity where it would overflow.
template <int W>
[[gnu::always_inline]] inline floats<W> exp(const floats<W>& x) noexcept {
    const floats<W> p = bounded_exp<W>(x);
    const floats<W> low = x < -87.336544F ? floats<W>{} : p;
    return x > 88.722834F ? spread<W>(__builtin_inff()) : low;
}

/// 2^x for x <= 127, to about two units in the last place; 2^-126 for x below -126 (Cephes' exp2f).
template <int W>
[[gnu::always_inline]] inline floats<W> bounded_exp2(const floats<W>& x) noexcept {
    const floats<W> lowest = spread<W>(-126.0F);
    const floats<W> c = lowest > x ? lowest : x;
    const floats<W> t = c + 12582912.0F;
    const floats<W> r = c - (t - 12582912.0F);
    floats<W> p = r * 1.535336188319500e-4F + 1.339887440266574e-3F;
    p = p * r + 9.618437357674640e-3F;
    p = p * r + 5.550332471162809e-2F;
    p = p * r + 2.402264791363012e-1F;
    p = p * r + 6.931472028550421e-1F;
    p = p * r + 1.0F;
    return scaled<W>(p, t);
}

/// 1 / (1 + e^-x), but not below about e^-88.7 = 3e-39.
template <int W>
[[gnu::always_inline]] inline floats<W> sigmoid(const floats<W>& x) noexcept {
    return 1.0F / (1.0F + bounded_exp<W>(-x));
}

template <int W>
[[gnu::always_inline]] inline floats<W> silu_of(const floats<W>& x) noexcept {
    return x / (1.0F + bounded_exp<W>(-x));
}

/// d/dx of x * sigmoid(x).
template <int W>
[[gnu::always_inline]] inline floats<W> silu_slope(const floats<W>& x) noexcept {
    const floats<W> s = sigmoid<W>(x);
    return s * (1.0F + x * (1.0F - s));
}

/// Calls f(integral_constant 0), ..., f(integral_constant N - 1), so that arrays indexed by them stay in registers.
template <int N, class F>
[[gnu::always_inline]] inline void repeat(F&& f) {
    [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
        (f(std::integral_constant<int, I>{}), ...);
    }
    (std::make_integer_sequence<int, N>{});
}

/// Lane by lane; compilers turn it into one instruction.
template <int W>
[[gnu::always_inline]] inline floats<W> square_root(const floats<W>& x) noexcept {
    floats<W> root;
    for (int l = 0; l != W; ++l) { root[l] = __builtin_sqrtf(x[l]); }
    return root;
}

/// Calls f.operator()<W>(first) for ranges of W elements that cover [begin, end): the widest, then narrower, then
/// single.
template <class F>
[[gnu::always_inline]] inline void for_lanes(std::int64_t begin, std::int64_t end, F&& f) {
    // end of the widest ranges; shows g++ that few elements follow: else it warns that their loop might never end
    const std::int64_t last = begin + (end - begin) / widest * widest;
    std::int64_t i = begin;
    for (; i < last; i += widest) { f.template operator()<widest>(i); }
    if constexpr (widest > 8) {
        if (i + 8 <= end) {
            f.template operator()<8>(i);
            i += 8;
        }
    }
    if constexpr (widest > 4) {
        if (i + 4 <= end) {
            f.template operator()<4>(i);
            i += 4;
        }
    }
    for (; i < end; ++i) { f.template operator()<1>(i); }
}

} // namespace pulse::onednn
