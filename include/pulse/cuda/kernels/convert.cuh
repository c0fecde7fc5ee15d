#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/precision.cuh>

namespace pulse::cuda {

inline constexpr int convert_threads = 256;

/// y[i] = factor * x[i], rounded to To; eight values at a time per thread if x and y are aligned.
template <class From, class To, bool Packs>
__global__ void __launch_bounds__(convert_threads) convert_kernel(std::int64_t n, float factor, const From* x, To* y) {
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    constexpr int together = 8;
    const std::int64_t runs = Packs ? n / together : 0;
    for (std::int64_t run = thread; run < runs; run += threads) {
        float values[together];
        for (int from = 0; from != together; from += pack_size<From>) {
            const pack<From> in = load_pack_streaming(x + run * together + from);
            for (int k = 0; k != pack_size<From>; ++k) { values[from + k] = in.get(k); }
        }
        for (int to = 0; to != together; to += pack_size<To>) {
            pack<To> out;
            for (int k = 0; k != pack_size<To>; ++k) { out.set(k, factor * values[to + k]); }
            store_pack(y + run * together + to, out);
        }
    }
    for (std::int64_t i = runs * together + thread; i < n; i += threads) {
        y[i] = from_float<To>(factor * to_float(x[i]));
    }
}

/// y[i] = factor * x[i] for n values, each rounded to To once; y may be x if the types are the same.
///
/// Moves at least n * (sizeof(From) + sizeof(To)) bytes.
template <class From, class To>
void convert(const queue& on, std::int64_t n, const From* x, To* y, float factor = 1.0f) {
    if (n == 0) { return; }
    const std::int64_t needed = (n / 8 + convert_threads) / convert_threads;
    const std::int64_t blocks = needed < 8 * on.multiprocessors ? needed : 8 * on.multiprocessors;
    const bool packs = is_pack_aligned(x) && is_pack_aligned(y);
    launch(packs ? convert_kernel<From, To, true> : convert_kernel<From, To, false>, static_cast<unsigned>(blocks),
           convert_threads, 0, on.stream, n, factor, x, y);
}

} // namespace pulse::cuda
