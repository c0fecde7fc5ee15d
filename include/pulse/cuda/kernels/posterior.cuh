#pragma once

#include <cstdint>

#include <pulse/core/error.hpp>
#include <pulse/cuda/kernels/divider.cuh>
#include <pulse/cuda/kernels/map_items.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

/// One scalar of a latent.
template <class T>
struct posterior_scalars {
    const T* moments;
    const T* noise;
    T* z;
    float factor;
    divider channels;

    [[nodiscard]] __device__ float read(std::uint32_t i) const {
        const divided at = divide(i, channels);
        const T* const mean = moments + std::int64_t{at.quotient} * 2 * channels.divisor + at.remainder;
        const float log_variance = fminf(fmaxf(to_float(mean[channels.divisor]), -30.0f), 20.0f);
        return factor * fmaf(expf(0.5f * log_variance), to_float(noise[i]), to_float(mean[0]));
    }
    __device__ void write(std::uint32_t i, float of) const { z[i] = from_float<T>(of); }
};

/// z = factor (mean + exp(logvar / 2) noise) of moments [pixels][mean, logvar][channels], logvar clamped to [-30, 20].
/// Must move 4 e n bytes for the n scalars of z.
template <class T>
void posterior(const queue& on, std::int64_t pixels, int channels, float factor, const T* moments, const T* noise,
               T* z) {
    if (pixels < 1 || channels < 1) { throw input_error("posterior: pixels and channels must be at least 1"); }
    map_items(on, "posterior", pixels * channels, posterior_scalars<T>{moments, noise, z, factor, divider(channels)});
}

} // namespace pulse::cuda
