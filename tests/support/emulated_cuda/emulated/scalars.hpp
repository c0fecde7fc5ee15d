#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace emulated_cuda {

/// How the values of a tensor are stored.
enum class number { f32, f16, bf16 };

[[nodiscard]] inline std::int64_t size_of(number n) { return n == number::f32 ? 4 : 2; }

[[nodiscard]] inline double load(number n, const void* data, std::int64_t at) {
    switch (n) {
    case number::f32: return static_cast<double>(static_cast<const float*>(data)[at]);
    case number::f16: return static_cast<double>(__half2float(static_cast<const __half*>(data)[at]));
    case number::bf16: return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]));
    }
    return 0.0;
}

inline void store(number n, void* data, std::int64_t at, double value) {
    const auto single = static_cast<float>(value);
    switch (n) {
    case number::f32: static_cast<float*>(data)[at] = single; break;
    case number::f16: static_cast<__half*>(data)[at] = __float2half_rn(single); break;
    case number::bf16: static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16_rn(single); break;
    }
}

/// A float as a tensor core reads it (TF32): 10 bits of mantissa, ties away from zero.
[[nodiscard]] inline double tensor_float(double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    return static_cast<double>(std::bit_cast<float>((bits + 0x1000U) & 0xffffe000U));
}

} // namespace emulated_cuda
