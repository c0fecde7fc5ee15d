#pragma once

#include <cstring>
#include <type_traits>

#include <cuda_runtime.h>

#include <pulse/cuda/kernels/mma.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// How the tensor cores multiply under a precision policy: tiles [16][step] by [step][8], in the registers of
/// cuda/kernels/mma.cuh. fp32 has none, because its factors are never rounded.
template <class P>
struct tensor_core;

/// For 16-bit scalars.
template <class Scalar>
struct short_tensor_core {
    using scalar = Scalar;
    static constexpr int step = 16;

    static __device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        if constexpr (std::is_same_v<scalar, __half>) {
            mma_fp16(sums, a, b0, b1);
        } else {
            mma_bf16(sums, a, b0, b1);
        }
    }
    /// Turns the result of load_matrices into factors.
    static __device__ void round(unsigned (&)[4]) {}
    /// Two neighbouring factors in one register.
    [[nodiscard]] static __device__ unsigned pair(float low, float high) {
        const auto both = round_pair(scalar{}, low, high);
        unsigned bits = 0;
        memcpy(&bits, &both, sizeof bits);
        return bits;
    }
    /// Writes two neighbouring scalars, the first at an even place.
    static __device__ void store_pair(scalar* to, float low, float high) {
        const auto both = round_pair(scalar{}, low, high);
        *reinterpret_cast<std::remove_const_t<decltype(both)>*>(to) = both;
    }
};

template <>
struct tensor_core<bf16> : short_tensor_core<__nv_bfloat16> {};
template <>
struct tensor_core<fp16> : short_tensor_core<__half> {};

template <>
struct tensor_core<tf32> {
    using scalar = float;
    static constexpr int step = 8;

    static __device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        mma_tf32(sums, a, b0, b1);
    }
    static __device__ void round(unsigned (&x)[4]) {
#pragma unroll
        for (int i = 0; i != 4; ++i) { x[i] = round_to_tf32(__uint_as_float(x[i])); }
    }
    static __device__ void store_pair(float* to, float low, float high) {
        *reinterpret_cast<float2*>(to) = make_float2(low, high);
    }
};

} // namespace pulse::cuda
