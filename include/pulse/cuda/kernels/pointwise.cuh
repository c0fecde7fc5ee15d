#pragma once

#include <cstdint>

#include <pulse/cuda/kernels/activations.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

struct silu_function {
    [[nodiscard]] __device__ float operator()(float x) const { return x * sigmoid(x); }
};
struct silu_gradient {
    [[nodiscard]] __device__ float operator()(float x, float dy) const { return dy * silu_slope(x); }
};
struct gelu_function {
    [[nodiscard]] __device__ float operator()(float x) const { return gelu_of(x); }
};
struct gelu_gradient {
    [[nodiscard]] __device__ float operator()(float x, float dy) const { return dy * gelu_slope(x); }
};
struct gelu_tanh_function {
    [[nodiscard]] __device__ float operator()(float x) const { return gelu_tanh_of(x); }
};
struct gelu_tanh_gradient {
    [[nodiscard]] __device__ float operator()(float x, float dy) const { return dy * gelu_tanh_slope(x); }
};
struct quick_gelu_function {
    [[nodiscard]] __device__ float operator()(float x) const { return x * sigmoid(1.702f * x); }
};
struct product_function {
    [[nodiscard]] __device__ float operator()(float x, float y) const { return x * y; }
};
struct scale_function {
    float factor;
    [[nodiscard]] __device__ float operator()(float x) const { return factor * x; }
};
struct same_function {
    [[nodiscard]] __device__ float operator()(float x) const { return x; }
};

/// The target's old value, which an item that adds needs and one that overwrites does not.
template <class T, int N, bool Adds>
struct target_before {
    lanes<T, N> stored;

    [[nodiscard]] static __device__ target_before load(const T* y) { return {lanes<T, N>::load(y)}; }
    [[nodiscard]] __device__ float plus(int n, float x) const { return x + stored[n]; }
};
template <class T, int N>
struct target_before<T, N, false> {
    [[nodiscard]] static __device__ target_before load(const T*) { return {}; }
    [[nodiscard]] __device__ float plus(int, float x) const { return x; }
};

/// y = (y +) f(x...) over lanes of `Count` tensors.
template <class T, int N, class F, bool Adds, int Count>
struct map_lanes {
    const T* x[Count];
    T* y;
    F f;

    struct item {
        lanes<T, N> x[Count];
        target_before<T, N, Adds> before;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const std::int64_t at = std::int64_t{i} * N;
        item made;
#pragma unroll
        for (int k = 0; k < Count; ++k) { made.x[k] = lanes<T, N>::load(x[k] + at); }
        made.before = target_before<T, N, Adds>::load(y + at);
        return made;
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if constexpr (Count == 1) {
                made[n] = of.before.plus(n, f(of.x[0][n]));
            } else {
                made[n] = of.before.plus(n, f(of.x[0][n], of.x[1][n]));
            }
        }
        lanes<T, N>::of(made).store(y + std::int64_t{i} * N);
    }
};

/// Maps packs if all pointers are aligned, and the remaining scalars one by one.
template <class F, bool Adds, class T, class... Pointers>
void map_scalars(const queue& on, const char* operation, std::int64_t n, const F& f, T* y, const Pointers*... x) {
    constexpr int N = pack_size<T>;
    constexpr int count = sizeof...(x);
    const std::int64_t packs = is_packable<T>(0, y, x...) ? n / N : 0;
    const std::int64_t at = packs * N;
    map_items(on, operation, packs, map_lanes<T, N, F, Adds, count>{{x...}, y, f});
    map_items(on, operation, n - at, map_lanes<T, 1, F, Adds, count>{{x + at...}, y + at, f});
}

/// y = x * sigmoid(x) over n scalars; y may be x. Must move 2 e n bytes.
template <class T>
void silu(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<silu_function, false>(on, "silu", n, {}, y, x);
}
/// dx = (dx +) dy times the slope of SiLU at x; dx may be dy. Must move 3 e n bytes, one e n more to add.
template <class T>
void silu_backward(const queue& on, std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    how == into::add ? map_scalars<silu_gradient, true>(on, "silu_backward", n, {}, dx, x, dy)
                     : map_scalars<silu_gradient, false>(on, "silu_backward", n, {}, dx, x, dy);
}
/// y = x * Phi(x), the exact GELU, over n scalars; y may be x. Must move 2 e n bytes.
template <class T>
void gelu(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<gelu_function, false>(on, "gelu", n, {}, y, x);
}
/// dx = (dx +) dy times the slope of GELU at x; dx may be dy. Must move 3 e n bytes, one e n more to add.
template <class T>
void gelu_backward(const queue& on, std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    how == into::add ? map_scalars<gelu_gradient, true>(on, "gelu_backward", n, {}, dx, x, dy)
                     : map_scalars<gelu_gradient, false>(on, "gelu_backward", n, {}, dx, x, dy);
}
/// y = x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, GELU's approximation, over n scalars; y may be x. Must move 2 e
/// n bytes.
template <class T>
void gelu_tanh(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<gelu_tanh_function, false>(on, "gelu_tanh", n, {}, y, x);
}
/// dx = (dx +) dy times the slope of gelu_tanh at x; dx may be dy. Must move 3 e n bytes, one e n more to add.
template <class T>
void gelu_tanh_backward(const queue& on, std::int64_t n, const T* x, const T* dy, T* dx, into how) {
    how == into::add ? map_scalars<gelu_tanh_gradient, true>(on, "gelu_tanh_backward", n, {}, dx, x, dy)
                     : map_scalars<gelu_tanh_gradient, false>(on, "gelu_tanh_backward", n, {}, dx, x, dy);
}
/// y = x * sigmoid(1.702 x) over n scalars; y may be x. Must move 2 e n bytes.
template <class T>
void quick_gelu(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<quick_gelu_function, false>(on, "quick_gelu", n, {}, y, x);
}
/// y *= x over n scalars. Must move 3 e n bytes.
template <class T>
void gate(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<product_function, false>(on, "gate", n, {}, y, x, y);
}
/// y = factor * x over n scalars; y may be x. Must move 2 e n bytes.
template <class T>
void scale(const queue& on, std::int64_t n, float factor, const T* x, T* y) {
    map_scalars<scale_function, false>(on, "scale", n, {factor}, y, x);
}
/// y += x over n scalars. Must move 3 e n bytes.
template <class T>
void add(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<same_function, true>(on, "add", n, {}, y, x);
}
/// y = x over n scalars. Must move 2 e n bytes.
template <class T>
void copy(const queue& on, std::int64_t n, const T* x, T* y) {
    map_scalars<same_function, false>(on, "copy", n, {}, y, x);
}

} // namespace pulse::cuda
