#pragma once

#include <cstdint>
#include <string>

#include <pulse/cuda/kernels/activations.cuh>
#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>

namespace pulse::cuda {

/// y[row][c] = value * gelu(gate) of x[row] = (values, gates).
template <class T, int N>
struct geglu_lanes {
    const T* x;
    T* y;
    int features;
    divider row_accesses; ///< of y

    struct item {
        lanes<T, N> value;
        lanes<T, N> gate;
    };
    /// Offset in x of the values of access i to y.
    [[nodiscard]] __device__ std::int64_t value_at(std::uint32_t i) const {
        const divided at = divide(i, row_accesses);
        return std::int64_t{2} * at.quotient * features + std::int64_t{at.remainder} * N;
    }
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const T* const from = x + value_at(i);
        return {lanes<T, N>::load(from), lanes<T, N>::load(from + features)};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float made[N];
#pragma unroll
        for (int n = 0; n < N; ++n) { made[n] = of.value[n] * gelu_of(of.gate[n]); }
        lanes<T, N>::of(made).store(y + std::int64_t{i} * N);
    }
};

template <class T, int N>
struct geglu_gradient_lanes {
    const T* dy;
    T* dx;
    geglu_lanes<T, N> forward;

    struct item {
        lanes<T, N> dy;
        typename geglu_lanes<T, N>::item x;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        return {lanes<T, N>::load(dy + std::int64_t{i} * N), forward.read(i)};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        float value[N];
        float gate[N];
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const float x = of.x.gate[n];
            const normal_distribution at = normal_at(x);
            value[n] = of.dy[n] * x * at.phi;
            gate[n] = of.dy[n] * of.x.value[n] * fmaf(x * 0.39894228f, at.bell, at.phi);
        }
        T* const to = dx + forward.value_at(i);
        lanes<T, N>::of(value).store(to);
        lanes<T, N>::of(gate).store(to + forward.features);
    }
};

/// y[rows][features] = value * gelu(gate) of x [rows][2 * features], values before gates (Shazeer 2020). Must move x
/// and y once: 3 e n bytes for the n scalars of y.
template <class T>
void geglu(const queue& on, std::int64_t rows, int features, const T* x, T* y) {
    if (features < 1) { throw input_error("geglu: features must be at least 1, not " + std::to_string(features)); }
    with_lanes<T>(is_packable<T>(features, x, y), [&]<int N>() {
        map_items(on, "geglu", rows * features / N, geglu_lanes<T, N>{x, y, features, divider(features / N)});
    });
}
/// dx from x and dy. Must move x, dy and dx once: 5 e n bytes for the n scalars of dy.
template <class T>
void geglu_backward(const queue& on, std::int64_t rows, int features, const T* x, const T* dy, T* dx) {
    if (features < 1) {
        throw input_error("geglu_backward: features must be at least 1, not " + std::to_string(features));
    }
    with_lanes<T>(is_packable<T>(features, x, dy, dx), [&]<int N>() {
        map_items(on, "geglu_backward", rows * features / N,
                  geglu_gradient_lanes<T, N>{dy, dx, {x, nullptr, features, divider(features / N)}});
    });
}

} // namespace pulse::cuda
