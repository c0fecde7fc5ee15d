#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace pulse::cuda {

/// Whether T is a type of activations and compute copies of parameters.
template <class T>
inline constexpr bool is_scalar_v =
    std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half> || std::is_same_v<T, float>;

/// The value as float; exact for every scalar.
__host__ __device__ inline float to_float(float value) { return value; }
__host__ __device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__host__ __device__ inline float to_float(__half value) { return __half2float(value); }

/// The scalar nearest to the value, ties to even; overflow gives infinity, NaN stays NaN.
template <class T>
__host__ __device__ inline T from_float(float value) {
    static_assert(is_scalar_v<T>, "pulse::cuda: a scalar must be __nv_bfloat16, __half or float");
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
        return __float2bfloat16_rn(value);
    } else if constexpr (std::is_same_v<T, __half>) {
        return __float2half_rn(value);
    } else {
        return value;
    }
}

/// Two floats as a pair of neighbouring scalars, rounded to the nearest.
__device__ inline __nv_bfloat162 round_pair(__nv_bfloat16, float a, float b) { return __floats2bfloat162_rn(a, b); }
__device__ inline __half2 round_pair(__half, float a, float b) { return __floats2half2_rn(a, b); }

/// 16 bytes of scalars, read and written as one access.
template <class T>
struct alignas(16) pack {
    static constexpr int size = 16 / static_cast<int>(sizeof(T));

    T values[size];

    __host__ __device__ T& operator[](int i) { return values[i]; }
    const __host__ __device__ T& operator[](int i) const { return values[i]; }
    /// Element i as float.
    [[nodiscard]] __host__ __device__ float get(int i) const { return to_float(values[i]); }
    /// Element i from float, rounded to the nearest.
    __host__ __device__ void set(int i, float value) { values[i] = from_float<T>(value); }
};

/// Scalars per 16-byte access.
template <class T>
inline constexpr int pack_size = pack<T>::size;

/// Whether packs may be read from and written to an address.
[[nodiscard]] __host__ __device__ inline bool is_pack_aligned(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// Whether n scalars are whole packs and every address is aligned for packs; null addresses pass.
template <class T, class... Pointers>
[[nodiscard]] __host__ __device__ bool is_packable(std::int64_t n, const Pointers*... addresses) {
    return n % pack_size<T> == 0 && (is_pack_aligned(addresses) && ...);
}

/// Reads one pack from an aligned address.
template <class T>
[[nodiscard]] __device__ inline pack<T> load_pack(const T* from) {
    return *reinterpret_cast<const pack<T>*>(from);
}

/// Reads one pack that is not needed again soon, so the cache evicts it first.
template <class T>
[[nodiscard]] __device__ inline pack<T> load_pack_streaming(const T* from) {
    const int4 bits = __ldcs(reinterpret_cast<const int4*>(from));
    pack<T> result;
    memcpy(&result, &bits, sizeof bits);
    return result;
}

/// Writes one pack to an aligned address of global memory, as one instruction: an assignment may be split.
template <class T>
__device__ inline void store_pack(T* to, const pack<T>& value) {
    int4 bits;
    memcpy(&bits, &value, sizeof bits);
    __stwb(reinterpret_cast<int4*>(to), bits);
}

/// Writes one pack to an aligned address of shared memory, as one number.
template <class T>
__device__ inline void store_pack_shared(T* to, const pack<T>& value) {
    __extension__ using number = unsigned __int128;
    uint4 bits;
    memcpy(&bits, &value, sizeof bits);
    *reinterpret_cast<number*>(to) = number{bits.w} << 96 | number{bits.z} << 64 | number{bits.y} << 32 | bits.x;
}

/// Writes one pack that is not needed again soon, so the cache evicts it first.
template <class T>
__device__ inline void store_pack_streaming(T* to, const pack<T>& value) {
    int4 bits;
    memcpy(&bits, &value, sizeof bits);
    __stcs(reinterpret_cast<int4*>(to), bits);
}

/// Activations and compute copies in bfloat16, sums and master weights in float (Kalamkar et al. 2019). The default.
struct bf16 {
    using scalar = __nv_bfloat16;
    using accumulator = float;
    static constexpr const char* name = "bf16";
    static constexpr bool scales_loss = false;  ///< whether gradients underflow unless the loss is scaled up
    static constexpr bool tensor_float = false; ///< whether products of floats may be computed in TF32
};

/// Activations and compute copies in half precision, sums and master weights in float, dynamic loss scaling
/// (Micikevicius et al. 2018).
struct fp16 {
    using scalar = __half;
    using accumulator = float;
    static constexpr const char* name = "fp16";
    static constexpr bool scales_loss = true;
    static constexpr bool tensor_float = false;
};

/// Everything stored in float; matrix products round their factors to 10 bits of mantissa.
struct tf32 {
    using scalar = float;
    using accumulator = float;
    static constexpr const char* name = "tf32";
    static constexpr bool scales_loss = false;
    static constexpr bool tensor_float = true;
};

/// Everything in float.
struct fp32 {
    using scalar = float;
    using accumulator = float;
    static constexpr const char* name = "fp32";
    static constexpr bool scales_loss = false;
    static constexpr bool tensor_float = false;
};

} // namespace pulse::cuda
