#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/lanes.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// The shape as the rotary kernels use it: angles in turns, which rotary_shape has in radians.
struct rotary_angles {
    int columns;
    int half; ///< pairs turned by the column; as many are turned by the row
    double column_first;
    double column_step;
    double row_first;
    double row_step; ///< positions from one row or column to the next
    double decay;    ///< decrease of the logarithm of the frequency from pair to pair

    explicit rotary_angles(const rotary_shape& s) :
        columns{s.columns}, half{s.head_size / 4}, column_first{s.first(true)}, column_step{s.step(true)},
        row_first{s.first(false)}, row_step{s.step(false)}, decay{std::log(10000.0) * 4.0 / s.head_size} {}

    /// Turns of a pair at a token, without whole turns.
    [[nodiscard]] __device__ float turns(int token, int pair) const {
        const bool by_column = pair < half;
        const double position =
            by_column ? column_first + column_step * (token % columns) : row_first + row_step * (token / columns);
        const double all = position * exp(-decay * (by_column ? pair : pair - half)) * 0.15915494309189533577;
        return static_cast<float>(all - rint(all));
    }
};

/// Turns every pair: a thread owns one access of `Pairs` pairs at one token, for all heads and its samples, so that
/// sines and cosines are computed once. blockIdx.y divides the samples.
template <class T, int Pairs>
__global__ void __launch_bounds__(128) rotary_kernel(rotary_angles angles, divider accesses, int tokens, int heads,
                                                     int head_size, int batch, float direction, const T* x, T* y) {
    const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    const divided at = divide(item, accesses);
    const int token = static_cast<int>(at.quotient);
    if (token >= tokens) { return; }
    constexpr int N = 2 * Pairs;
    float sine[Pairs];
    float cosine[Pairs];
#pragma unroll
    for (int p = 0; p < Pairs; ++p) {
        const float turns = 2.0f * angles.turns(token, static_cast<int>(at.remainder) * Pairs + p);
        sine[p] = direction * sinpif(turns);
        cosine[p] = cospif(turns);
    }
    for (int b = static_cast<int>(blockIdx.y); b < batch; b += static_cast<int>(gridDim.y)) {
        const std::int64_t first =
            (std::int64_t{b} * tokens + token) * heads * head_size + std::int64_t{at.remainder} * N;
#pragma unroll 4
        for (int h = 0; h < heads; ++h) {
            const std::int64_t place = first + std::int64_t{h} * head_size;
            float value[N];
            if constexpr (Pairs == 1) {
                value[0] = to_float(x[place]);
                value[1] = to_float(x[place + 1]);
            } else {
                load_floats(x + place, value);
            }
#pragma unroll
            for (int p = 0; p < Pairs; ++p) {
                const float even = value[2 * p];
                const float odd = value[2 * p + 1];
                value[2 * p] = fmaf(even, cosine[p], -odd * sine[p]);
                value[2 * p + 1] = fmaf(odd, cosine[p], even * sine[p]);
            }
            if constexpr (Pairs == 1) {
                y[place] = from_float<T>(value[0]);
                y[place + 1] = from_float<T>(value[1]);
            } else {
                lanes<T, N>::of(value).store(y + place);
            }
        }
    }
}

template <class T>
void turn_pairs(const queue& on, const rotary_shape& s, int batch, float direction, const T* x, T* y) {
    if (batch < 1 || s.rows < 1 || s.columns < 1 || s.heads < 1 || s.head_size < 4 || s.head_size % 4 != 0) {
        throw input_error("rotary: sizes must be at least 1, and head_size a multiple of 4");
    }
    const auto run = [&]<int Pairs>() {
        const int accesses = s.head_size / (2 * Pairs);
        const std::int64_t items = std::int64_t{s.tokens()} * accesses;
        const std::int64_t blocks = (items + 127) / 128;
        // Samples are divided among blocks until the device is full.
        const std::int64_t shares =
            std::clamp<std::int64_t>(16 * on.multiprocessors / blocks, 1, std::min(batch, 65535));
        launch(rotary_kernel<T, Pairs>, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(shares)), dim3(128),
               0, on.stream, rotary_angles(s), divider(accesses), s.tokens(), s.heads, s.head_size, batch, direction, x,
               y);
    };
    is_packable<T>(s.head_size, x, y) ? run.template operator()<pack_size<T> / 2>() : run.template operator()<1>();
}

/// Turns the pair (a, b) of each head into (a cos - b sin, b cos + a sin) by its angle (rotary_shape), for x and y
/// [batch][tokens][heads * head_size]; y may be x. Must move 2 e n bytes.
template <class T>
void rotary(const queue& on, const rotary_shape& s, int batch, const T* x, T* y) {
    turn_pairs(on, s, batch, 1.0f, x, y);
}
/// Turns dy back; dx may be dy. Must move 2 e n bytes.
template <class T>
void rotary_backward(const queue& on, const rotary_shape& s, int batch, const T* dy, T* dx) {
    turn_pairs(on, s, batch, -1.0f, dy, dx);
}

} // namespace pulse::cuda
