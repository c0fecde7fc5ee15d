#pragma once

/// The built-in variables and functions of device code, for a host compiler; CUDA's own headers provide the types. Each
/// thread of a block is a fiber; barriers and shuffles really exchange data.

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>

#include <math.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <emulated/block.hpp>

#define PULSE_EMULATED_CUDA 1

#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __constant__
#define __constant__ static const

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

inline constexpr int warpSize = emulated_cuda::warp_size;

inline void __syncthreads() { emulated_cuda::block_barrier(); }

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emulated_cuda::require_full(mask, "__syncwarp");
    static_cast<void>(emulated_cuda::warp_exchange({emulated_cuda::warp_call::barrier, 0, 32}, nullptr, 0));
}

inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles words of 32 and 64 bits");
    emulated_cuda::require_full(mask, "__shfl_sync");
    const emulated_cuda::warp_values all =
        emulated_cuda::warp_exchange({emulated_cuda::warp_call::shuffle, 0, width}, &value, sizeof value);
    const int first = emulated_cuda::lane() / width * width;
    return all.at<T>(first + (source & (width - 1)));
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles words of 32 and 64 bits");
    emulated_cuda::require_full(mask, "__shfl_xor_sync");
    const emulated_cuda::warp_values all =
        emulated_cuda::warp_exchange({emulated_cuda::warp_call::shuffle_xor, lane_mask, width}, &value, sizeof value);
    const int source = emulated_cuda::lane() ^ lane_mask;
    // a lane of a later segment cannot be read
    const bool inside = source / width <= emulated_cuda::lane() / width;
    return inside ? all.at<T>(source) : value;
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles words of 32 and 64 bits");
    emulated_cuda::require_full(mask, "__shfl_down_sync");
    const emulated_cuda::warp_values all = emulated_cuda::warp_exchange(
        {emulated_cuda::warp_call::shuffle_down, static_cast<int>(delta), width}, &value, sizeof value);
    const int source = emulated_cuda::lane() + static_cast<int>(delta);
    return source / width == emulated_cuda::lane() / width ? all.at<T>(source) : value;
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles words of 32 and 64 bits");
    emulated_cuda::require_full(mask, "__shfl_up_sync");
    const emulated_cuda::warp_values all = emulated_cuda::warp_exchange(
        {emulated_cuda::warp_call::shuffle_up, static_cast<int>(delta), width}, &value, sizeof value);
    const int source = emulated_cuda::lane() - static_cast<int>(delta);
    return source >= emulated_cuda::lane() / width * width ? all.at<T>(source) : value;
}

template <class T>
T __ldg(const T* from) {
    return *from;
}
template <class T>
T __ldcs(const T* from) {
    return *from;
}
template <class T>
T __ldcg(const T* from) {
    return *from;
}
template <class T>
void __stcs(T* to, T value) {
    *to = value;
}
template <class T>
void __stwb(T* to, T value) {
    *to = value;
}
template <class T>
void __stcg(T* to, T value) {
    *to = value;
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned value) { return std::bit_cast<float>(value); }
inline float __int_as_float(int value) { return std::bit_cast<float>(value); }

inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float sinpif(float x) { return static_cast<float>(sin(3.14159265358979323846 * static_cast<double>(x))); }
inline float cospif(float x) { return static_cast<float>(cos(3.14159265358979323846 * static_cast<double>(x))); }
inline void sincospif(float x, float* s, float* c) {
    *s = sinpif(x);
    *c = cospif(x);
}

// Separate roundings: the volatile keeps the host compiler from fusing the operations.
inline float __fadd_rn(float x, float y) {
    volatile float sum = x + y;
    return sum;
}
inline float __fmul_rn(float x, float y) {
    volatile float product = x * y;
    return product;
}
inline float __fsub_rn(float x, float y) {
    volatile float difference = x - y;
    return difference;
}
inline double __dadd_rn(double x, double y) {
    volatile double sum = x + y;
    return sum;
}
inline double __dmul_rn(double x, double y) {
    volatile double product = x * y;
    return product;
}

inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using wide = unsigned __int128;
    return static_cast<unsigned long long>(static_cast<wide>(a) * b >> 64);
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

template <class T>
    requires std::is_arithmetic_v<T>
constexpr T min(T a, T b) { return b < a ? b : a; }
template <class T>
    requires std::is_arithmetic_v<T>
constexpr T max(T a, T b) { return a < b ? b : a; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

// Kernels run one at a time, so plain operations are atomic.
template <class T>
    requires std::is_arithmetic_v<T> T atomicAdd(T* to, std::type_identity_t<T> value) {
        const T old = *to;
        *to = static_cast<T>(old + value);
        return old;
    }
template <std::integral T>
T atomicMax(T* to, std::type_identity_t<T> value) {
    const T old = *to;
    *to = old < value ? value : old;
    return old;
}
template <std::integral T>
T atomicMin(T* to, std::type_identity_t<T> value) {
    const T old = *to;
    *to = value < old ? value : old;
    return old;
}
template <std::integral T>
T atomicOr(T* to, std::type_identity_t<T> value) {
    const T old = *to;
    *to = old | value;
    return old;
}
template <std::integral T>
T atomicExch(T* to, std::type_identity_t<T> value) {
    const T old = *to;
    *to = value;
    return old;
}

// NOLINTEND(bugprone-reserved-identifier)
