#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// One pair of e: the angle and its frequency in double, so that timesteps in the thousands keep their digits.
template <class T>
struct sinusoid_pairs {
    const float* timesteps;
    T* e;
    int features;
    bool flip;
    double decay; ///< decrease of the logarithm of the frequency from pair to pair
    divider half;

    struct item {
        float sine;
        float cosine;
    };
    [[nodiscard]] __device__ item read(std::uint32_t i) const {
        const divided at = divide(i, half);
        const double turns =
            static_cast<double>(timesteps[at.quotient]) * exp(-decay * at.remainder) * 0.15915494309189533577;
        const auto half_turns = static_cast<float>(2.0 * (turns - rint(turns)));
        return {sinpif(half_turns), cospif(half_turns)};
    }
    __device__ void write(std::uint32_t i, const item& of) const {
        const divided at = divide(i, half);
        T* const row = e + std::int64_t{at.quotient} * features + at.remainder;
        row[flip ? half.divisor : 0] = from_float<T>(of.sine);
        row[flip ? 0 : half.divisor] = from_float<T>(of.cosine);
    }
};

/// e[b] = (sin(t w_0), sin(t w_1), ..., cos(t w_0), cos(t w_1), ...) of timesteps t [batch], with
/// w_i = 10000^(-i / (features / 2 - shift)); flip puts cosines first. Must write e [batch][features].
template <class T>
void sinusoid(const queue& on, int batch, int features, bool flip, double shift, const float* timesteps, T* e) {
    const int half = features / 2;
    if (half < 1) { throw input_error("sinusoid: features must be at least 2, not " + std::to_string(features)); }
    const double decay = std::log(10000.0) / (half - shift);
    map_items(on, "sinusoid", std::int64_t{batch} * half,
              sinusoid_pairs<T>{timesteps, e, features, flip, decay, divider(half)});
}

} // namespace pulse::cuda
