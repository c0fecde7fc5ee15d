#pragma once

#include <algorithm>
#include <cstdint>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

template <class T, int N, bool Adds>
struct gradient_rows {
    static constexpr int together = std::min(N, pack_size<float>);

    const T* x;
    float* y;
    std::int64_t y_stride;
    divider row_accesses;

    struct item {
        lanes<T, N> x;
        lanes<float, together> y[N / together];
    };
    [[nodiscard]] __device__ float* target(std::uint32_t i) const {
        const divided at = divide(i, row_accesses);
        return y + at.quotient * y_stride + std::int64_t{at.remainder} * N;
    }
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        item made;
        made.x = lanes<T, N>::load(x + std::int64_t{i} * N);
#pragma unroll
        for (int k = 0; Adds && k < N / together; ++k) {
            made.y[k] = lanes<float, together>::load(target(i) + k * together);
        }
        return made;
    }
    __device__ void write(std::uint32_t i, const item& of) const {
#pragma unroll
        for (int k = 0; k < N / together; ++k) {
            float sums[together];
#pragma unroll
            for (int n = 0; n < together; ++n) { sums[n] = (Adds ? of.y[k][n] : 0.0f) + of.x[k * together + n]; }
            lanes<float, together>::of(sums).store(target(i) + k * together);
        }
    }
};

/// Writes or adds `rows` times n contiguous gradients to rows of floats y_stride apart. Must move e + 4 bytes per
/// gradient, e + 8 when adding.
template <class T>
void add_gradient(const queue& on, std::int64_t rows, std::int64_t n, const T* x, gradient_place<float> y,
                  std::int64_t y_stride) {
    with_lanes<T>(is_packable<T>(n, x, y.to) && y_stride % pack_size<float> == 0, [&]<int N>() {
        const auto start = [&](auto map) { map_items(on, "add_gradient", rows * n / N, map); };
        y.adds() ? start(gradient_rows<T, N, true>{x, y.to, y_stride, divider(n / N)})
                 : start(gradient_rows<T, N, false>{x, y.to, y_stride, divider(n / N)});
    });
}

} // namespace pulse::cuda
