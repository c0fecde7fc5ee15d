#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <pulse/cuda/attention_engine.cuh>
#include <pulse/cuda/kernels/attention_launches.cuh>
#include <pulse/cuda/launch.cuh>
#include <pulse/cuda/launch_limits.cuh>
#include <pulse/cuda/precision.cuh>
#include <pulse/cuda/queue.cuh>
#include <pulse/plan/cuda_memory.hpp>
#include <pulse/runtime/backend.hpp>

namespace pulse::cuda {

/// Number of parts that the queries are split into when gradients of keys and values are summed: with few keys, one
/// block per tile of keys does not fill a device, but several parts do. It depends on the shape and the tiles alone, so
/// that devices with the same tiles sum in the same order.
template <class T>
[[nodiscard]] int attention_parts(const attention_shape& s, int batch, const attention_launches<T>& by) {
    constexpr std::int64_t enough_blocks = cuda_attention_blocks;
    constexpr std::int64_t least_tiles = 4; // of queries per part; fewer do not pay for the extra sums
    const std::int64_t blocks = std::int64_t{batch} * s.heads * ((s.keys() + by.key_rows - 1) / by.key_rows);
    const std::int64_t tiles = (s.tokens + by.query_columns - 1) / by.query_columns;
    return static_cast<int>(std::max(std::int64_t{1}, std::min(enough_blocks / blocks, tiles / least_tiles)));
}

/// The factor of the scores, 1 / sqrt(head_size).
[[nodiscard]] inline float attention_scale(const attention_shape& s) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_size)));
}

/// The kernels of one of pulse's own engines for a head size, with tiles for `Shared` bytes of shared memory.
template <class P, std::size_t Shared>
[[nodiscard]] attention_launches<typename P::scalar> attention_launches_within(attention_engine engine, int head_size) {
    if constexpr (has_tensor_core<P>) {
        if (engine == attention_engine::tensor_cores) { return tensor_core_attention_for<P, Shared>(head_size); }
    }
    return fma_attention_for<typename P::scalar, Shared>(head_size);
}

/// The kernels of one of pulse's own engines for a shape, with shared_bytes of shared memory per block: by default, the
/// most that the current device allows.
template <class P>
[[nodiscard]] attention_launches<typename P::scalar> attention_launches_of(
    attention_engine engine, const attention_shape& s, std::size_t shared_bytes = most_dynamic_shared_bytes()) {
    return shared_bytes < large_shared_bytes ? attention_launches_within<P, small_shared_bytes>(engine, s.head_size)
                                             : attention_launches_within<P, large_shared_bytes>(engine, s.head_size);
}

/// Attention by the given kernels; see attention.
template <class T>
void attention_by(const attention_launches<T>& by, const queue& on, const attention_shape& s, int batch, const T* q,
                  const T* k, const T* v, T* o, float* lse) {
    by.forward(on, batch, {q, k, v, o, lse, s.tokens, s.keys(), s.heads, s.head_size, attention_scale(s)});
}

/// Floats of scratch for delta: `rows`, rounded up to a multiple of 4, because the sums after it are written in pairs.
[[nodiscard]] constexpr std::int64_t attention_delta_floats(std::int64_t rows) noexcept { return (rows + 3) / 4 * 4; }

/// Bytes of scratch that attention_backward_by needs.
template <class T>
[[nodiscard]] std::size_t attention_backward_scratch_bytes_by(const attention_launches<T>& by, const attention_shape& s,
                                                              int batch) {
    const auto samples = static_cast<std::size_t>(batch);
    const auto parts = static_cast<std::size_t>(attention_parts<T>(s, batch, by));
    const std::size_t partial = parts == 1 ? 0 : 2 * parts * samples * s.keys() * s.width();
    const std::int64_t rows = std::int64_t{batch} * s.heads * s.tokens;
    return sizeof(float) * (static_cast<std::size_t>(attention_delta_floats(rows)) + partial);
}

/// The gradients of attention by the given kernels; see attention_backward.
template <class T>
void attention_backward_by(const attention_launches<T>& by, const queue& on, const attention_shape& s, int batch,
                           const T* q, const T* k, const T* v, const T* o, const float* lse, const T* dout, T* dq,
                           T* dk, T* dv) {
    constexpr int threads = 256;
    auto* const delta = reinterpret_cast<float*>(on.scratch);
    const std::int64_t rows = std::int64_t{batch} * s.tokens * s.heads;
    attention_gradients<T> gradients{dout, lse, delta, dq, dk, dv};
    gradients.parts = attention_parts(s, batch, by);
    if (gradients.parts > 1) { gradients.partial = delta + attention_delta_floats(rows); }
    const auto blocks = [](std::int64_t n) { return dim3(static_cast<unsigned>((n + threads - 1) / threads)); };
    launch(attention_delta<T, threads>, blocks(8 * rows), dim3(threads), 0, on.stream, rows, s.tokens, s.heads,
           s.head_size, o, dout, delta);
    by.backward(on, batch, {q, k, v, nullptr, nullptr, s.tokens, s.keys(), s.heads, s.head_size, attention_scale(s)},
                gradients);
    if (gradients.parts > 1) {
        const std::int64_t n = std::int64_t{batch} * s.keys() * s.width();
        launch(attention_join_parts<T, threads>, blocks(2 * n), dim3(threads), 0, on.stream, n, gradients.parts,
               gradients.partial, dk, dv);
    }
}

/// Attention as reference::backend defines it, by pulse's own kernels: q and o [batch][tokens][width], k and v
/// [batch][keys][width], lse [batch][heads][tokens] in float, natural logarithms. Scores stay on the chip (Dao 2023);
/// products and weights are summed in float, and weights are rounded to the scalar before the product with v.
///
/// Moves at least e batch width (2 tokens + 2 keys) + 4 batch heads tokens bytes for e bytes per scalar, and takes 4
/// batch heads tokens keys head_size floating-point operations. Throws input_error as require_attention does.
template <class P>
void attention(const queue& on, const attention_shape& s, int batch, const typename P::scalar* q,
               const typename P::scalar* k, const typename P::scalar* v, typename P::scalar* o, float* lse) {
    const attention_engine engine = own_attention_engine<P>(s, batch);
    const bool aligned = is_packable<typename P::scalar>(0, q, k, v, o);
    attention_by(attention_launches_of<P>(aligned ? engine : attention_engine::fma, s), on, s, batch, q, k, v, o, lse);
}

/// Bytes of scratch that attention_backward needs, whatever the alignment of its operands.
template <class P>
[[nodiscard]] std::size_t attention_backward_scratch_bytes(const attention_shape& s, int batch) {
    const attention_engine engine = own_attention_engine<P>(s, batch);
    return std::max(attention_backward_scratch_bytes_by(attention_launches_of<P>(engine, s), s, batch),
                    attention_backward_scratch_bytes_by(attention_launches_of<P>(attention_engine::fma, s), s, batch));
}

/// Writes the gradients of attention's inputs, from its inputs and outputs and from dout, the gradient of o.
///
/// Weights are recomputed, once for dk and dv and once for dq (for heads over 160, dk and dv are two launches), so that
/// each sum has one owner and one order. Moves at least e batch width (4 tokens + 4 keys) + 4 batch heads tokens bytes
/// and takes 14 batch heads tokens keys head_size floating-point operations, of which 4 are work done twice. Throws
/// input_error as require_attention does.
template <class P>
void attention_backward(const queue& on, const attention_shape& s, int batch, const typename P::scalar* q,
                        const typename P::scalar* k, const typename P::scalar* v, const typename P::scalar* o,
                        const float* lse, const typename P::scalar* dout, typename P::scalar* dq,
                        typename P::scalar* dk, typename P::scalar* dv) {
    const attention_engine engine = own_attention_engine<P>(s, batch);
    const bool aligned = is_packable<typename P::scalar>(0, q, k, v, dout, dq, dk, dv);
    attention_backward_by(attention_launches_of<P>(aligned ? engine : attention_engine::fma, s), on, s, batch, q, k, v,
                          o, lse, dout, dq, dk, dv);
}

} // namespace pulse::cuda
