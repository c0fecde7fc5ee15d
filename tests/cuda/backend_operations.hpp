#pragma once

#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include <support/operations/functions.hpp>
#include <support/operations/movement.hpp>
#include <support/operations/norms.hpp>

#include <backend_trial.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test;

// The kernels behind these operations have their own tests over many shapes. Here the backend's calls are tested: which
// arguments go where, the scratch that it passes, the order of the results.

namespace backend_tests {

template <class P>
void check_attention(backend_trial<P>& t) {
    using T = typename P::scalar;
    const double error = P::tensor_float ? 1e-2 : 4.0 * (2.0 * rounding_error<T> + 16.0 * float_epsilon);
    for (const int context : {0, 5}) {
        CAPTURE(context);
        const pulse::attention_shape a{9, 2, 16, context};
        const int batch = 2;
        const std::int64_t n = batch * 9 * a.width();
        const std::int64_t keys = std::int64_t{batch} * a.keys() * a.width();
        const std::int64_t lines = batch * 2 * 9;
        const doubles q = t.normal(n);
        const doubles k = t.normal(keys);
        const doubles v = t.normal(keys);
        const doubles dout = t.normal(n);
        doubles o(static_cast<std::size_t>(n));
        doubles lse(static_cast<std::size_t>(lines));
        t.side.oracle.attention(a, batch, q.data(), k.data(), v.data(), o.data(), lse.data());
        t.check({q, k, v}, {}, {t.writes(n, error), t.writes_sums(lines, P::tensor_float ? 1e-2 : 1e-5)},
                [&](auto& on, auto& s) { on.attention(a, batch, s.x[0], s.x[1], s.x[2], s.y[0], s.sums[0]); });
        t.check({q, k, v, rounded<T>(o), dout}, {rounded<float>(lse)},
                {t.writes(n, 2 * error), t.writes(keys, 2 * error), t.writes(keys, 2 * error)}, [&](auto& on, auto& s) {
                    on.attention_backward(a, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.a[0], s.x[4], s.y[0], s.y[1],
                                          s.y[2]);
                });
    }
}

template <class P>
void check_operations(unsigned seed) {
    backend_trial<P> t{seed};
    constexpr int batch = 2;
    check_group_norm(t, {12, 4, 4, 9, 1e-5, true}, batch);
    check_group_norm_pieces(t, {12, 0, 4, 9, 1e-5, true}, 3, batch);
    check_layer_norm(t, {24, 1e-6}, 5);
    check_adaptive_norm(t, {12, 3, 20, 1e-6}, batch, true, true);
    check_rms_norm(t, 24, 5);
    check_attention(t);
    check_masked_attention(t, {7, 2, 8, 0.3}, batch, {0, 7});
    check_activations(t, {37});
    check_simple_functions(t, 37);
    check_geglu(t, 4, 6);
    check_gates(t, 37);
    check_sinusoids(t);
    check_posterior(t, 4);
    check_patches(t, {2, 3, 2, 3, 1}, batch);
    check_copied_rows(t);
    check_upsampling(t, batch, 3, 2, 10);
    check_pixel_sums(t, batch, 6, 10);
    check_drawn_resampling(t, 3, 40);
    check_rotary(t, {3, 2, 2, 8, 5.0}, batch);
    check_embedding(t, {5, 6}, 4);
    check_padding(t, batch, 3, 5);
}

} // namespace backend_tests

using namespace backend_tests;

// fp16 runs the kernels of bf16 in another type, and tf32 differs from fp32 in products and attention only: they are
// tested with those.
TEST_CASE("backend: norms, attention, activations and movement are what the reference means") {
    check_operations<cuda::bf16>(41);
#ifndef __CUDACC__ // nvcc takes minutes for each type of every kernel; the kernels have tests of their own
    check_operations<cuda::fp32>(44);
#endif
}
