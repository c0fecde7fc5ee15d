#pragma once

#include <type_traits>

#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// N neighbouring scalars, converted to float when read: a whole pack, or one scalar if packs do not fit.
template <class T, int N>
struct lanes {
    static_assert(N == 1 || N == pack_size<T>, "pulse::cuda: lanes must be one scalar or one pack");

    std::conditional_t<N == 1, T, pack<T>> stored;

    [[nodiscard]] static __device__ lanes load(const T* from) {
        if constexpr (N == 1) {
            return {*from};
        } else {
            return {load_pack(from)};
        }
    }
    /// As load, for data that is not read again soon.
    [[nodiscard]] static __device__ lanes load_streaming(const T* from) {
        if constexpr (N == 1) {
            return {*from};
        } else {
            return {load_pack_streaming(from)};
        }
    }
    [[nodiscard]] static __device__ lanes of(const float (&values)[N]) {
        lanes made;
        if constexpr (N == 1) {
            made.stored = from_float<T>(values[0]);
        } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
            for (int i = 0; i < N; ++i) { made.stored.values[i] = values[i]; }
        } else {
#pragma unroll
            for (int i = 0; i < N; i += 2) {
                const auto two = round_pair(T{}, values[i], values[i + 1]);
                made.stored.values[i] = two.x;
                made.stored.values[i + 1] = two.y;
            }
        }
        return made;
    }
    /// Writes to global memory.
    __device__ void store(T* to) const {
        if constexpr (N == 1) {
            *to = stored;
        } else {
            store_pack(to, stored);
        }
    }
    /// Writes to shared memory.
    __device__ void store_shared(T* to) const {
        if constexpr (N == 1) {
            *to = stored;
        } else {
            store_pack_shared(to, stored);
        }
    }
    [[nodiscard]] __device__ float operator[](int i) const {
        if constexpr (N == 1) {
            return to_float(stored);
        } else {
            return stored.get(i);
        }
    }
};

/// Calls run.operator()<N>() for lanes of a pack if `packs`, else for lanes of one scalar.
template <class T, class Run>
void with_lanes(bool packs, const Run& run) {
    packs ? run.template operator()<pack_size<T>>() : run.template operator()<1>();
}

/// Reads N scalars as floats.
template <int N, class T>
__device__ void load_floats(const T* from, float (&to)[N]) {
    const auto read = lanes<T, N>::load(from);
#pragma unroll
    for (int i = 0; i < N; ++i) { to[i] = read[i]; }
}

} // namespace pulse::cuda
