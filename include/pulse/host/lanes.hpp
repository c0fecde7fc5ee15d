#pragma once

#include <cstdint>
#include <cstring>

namespace pulse::host {

/// W floats that the compiler keeps in vector registers of whatever width the target has.
template <int W>
struct lanes {
    typedef float floats __attribute__((vector_size(W * 4)));
    typedef std::int32_t ints __attribute__((vector_size(W * 4)));
};

template <int W>
using floats = typename lanes<W>::floats;

/// The lanes of one vector register of the target. Wider vectors are not used: they have no settled calling convention.
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

/// e^x to about one unit in the last place; 0 where e^x would be denormal, infinity where it would overflow.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of degree 6 for e^r (the coefficients of Cephes' expf), and n added
/// to the exponent.
template <int W>
[[gnu::always_inline]] inline floats<W> exp(const floats<W>& x) noexcept {
    using ints = typename lanes<W>::ints;
    constexpr float lowest = -87.336544F;  // log(FLT_MIN)
    constexpr float highest = 88.722834F;  // log(FLT_MAX), rounded down
    constexpr float magic = 12582912.0F;   // 1.5 * 2^23: its last bits hold the rounded integer
    const floats<W> a = x < lowest ? spread<W>(lowest) : x;
    const floats<W> c = a > highest ? spread<W>(highest) : a;
    const floats<W> t = c * 1.44269504F + magic;
    const floats<W> n = t - magic;
    const floats<W> r = (c - n * 0.693359375F) + n * 2.12194440e-4F;
    floats<W> p = r * 1.9875691500e-4F + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * (r * r) + r + 1.0F;
    ints exponent;
    ints bits;
    std::memcpy(&exponent, &t, sizeof t);
    std::memcpy(&bits, &p, sizeof p);
    bits += exponent << 23;
    std::memcpy(&p, &bits, sizeof p);
    p = x < lowest ? floats<W>{} : p;
    p = x > highest ? spread<W>(__builtin_inff()) : p;
    return x != x ? x : p;
}

template <int W>
[[gnu::always_inline]] inline floats<W> sigmoid(const floats<W>& x) noexcept {
    return 1.0F / (1.0F + exp<W>(-x));
}

/// d/dx of x * sigmoid(x).
template <int W>
[[gnu::always_inline]] inline floats<W> silu_slope(const floats<W>& x) noexcept {
    const floats<W> s = sigmoid<W>(x);
    return s * (1.0F + x * (1.0F - s));
}

/// Lane by lane; compilers make one instruction of it.
template <int W>
[[gnu::always_inline]] inline floats<W> square_root(const floats<W>& x) noexcept {
    floats<W> root;
    for (int l = 0; l != W; ++l) { root[l] = __builtin_sqrtf(x[l]); }
    return root;
}

/// Calls f.operator()<W>(first) for ranges of W elements that cover [begin, end): the widest, then narrower, then single.
template <class F>
[[gnu::always_inline]] inline void for_lanes(std::int64_t begin, std::int64_t end, F&& f) {
    std::int64_t i = begin;
    for (; i + widest <= end; i += widest) { f.template operator()<widest>(i); }
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

} // namespace pulse::host
