#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <backend_trial.hpp>

namespace cuda = pulse::cuda;
using pulse::into;
using namespace pulse::test;

// The kernels behind these operations have tests of their own, over many shapes; here it is the backend's way to them:
// which arguments go where, the scratch that it gives them, the order of the results.

namespace backend_tests {

/// Of values that a few float operations made, and `steps` roundings to T on the way, relative to the greatest.
template <class T>
[[nodiscard]] double few(int steps) {
    return (steps - 1) * rounding_error<T> + 16.0 * float_epsilon;
}

/// Calls op(backend, pointers to inputs, pointers to outputs) on both sides and compares every output.
template <class P>
struct operation_trial : backend_trial<P> {
    using typename backend_trial<P>::T;
    using backend_trial<P>::backend_trial;

    struct result {
        doubles before;  ///< NaN where the operation must write
        double relative; ///< error, relative to the greatest value
        bool sums{};     ///< in float, whatever T is
    };

    template <class Op>
    void check(const std::vector<doubles>& inputs, const std::vector<doubles>& sums_in, std::vector<result> results,
               Op op) {
        std::vector<tensor<T>> x;
        std::vector<tensor<float>> a;
        std::vector<tensor<T>> y;
        std::vector<tensor<float>> sums;
        sides<const T, const float, T, float> here;
        sides<const double, const double, double, double> there;
        for (const doubles& v : inputs) {
            x.emplace_back(v);
            here.x.push_back(x.back().data());
            there.x.push_back(v.empty() ? nullptr : v.data());
        }
        for (const doubles& v : sums_in) {
            a.emplace_back(v);
            here.a.push_back(a.back().data());
            there.a.push_back(v.data());
        }
        std::vector<doubles> wanted;
        for (const result& r : results) { wanted.push_back(r.before); }
        for (std::size_t i = 0; i != results.size(); ++i) {
            double* const plain = wanted[i].empty() ? nullptr : wanted[i].data();
            if (results[i].sums) {
                sums.emplace_back(results[i].before);
                here.sums.push_back(sums.back().data());
                there.sums.push_back(plain);
            } else {
                y.emplace_back(results[i].before);
                here.y.push_back(y.back().data());
                there.y.push_back(plain);
            }
        }
        op(this->on, here);
        op(this->oracle, there);
        std::size_t next_sum = 0;
        std::size_t next = 0;
        for (std::size_t i = 0; i != results.size(); ++i) {
            CAPTURE(i);
            if (wanted[i].empty()) {
                ++next;
            } else if (results[i].sums) {
                CHECK(worst<float>(this->got(sums[next_sum++]), wanted[i], results[i].relative) < 1.0);
            } else {
                CHECK(worst<T>(this->got(y[next++]), wanted[i], results[i].relative) < 1.0);
            }
        }
    }

    [[nodiscard]] doubles normal(std::int64_t n) { return this->draw.template normal<T>(n); }
    [[nodiscard]] static doubles poison(std::int64_t n) {
        return doubles(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN());
    }

    template <class X, class A, class Y, class S>
    struct sides {
        std::vector<X*> x{};
        std::vector<A*> a{};
        std::vector<Y*> y{};
        std::vector<S*> sums{};
    };
};

template <class P>
void check_norms(operation_trial<P>& t) {
    using T = typename P::scalar;
    const pulse::group_norm_shape g{12, 4, 4, 9, 1e-5, true};
    const int batch = 2;
    const std::int64_t na = batch * 9 * 12;
    const std::int64_t nb = batch * 9 * 4;
    const doubles xa = t.normal(na);
    const doubles xb = t.normal(nb);
    const doubles gamma = t.normal(16);
    const doubles beta = t.normal(16);
    const doubles dy = t.normal(na + nb);
    doubles statistics(static_cast<std::size_t>(batch * 4 * 2));
    doubles unused(static_cast<std::size_t>(na + nb));
    t.oracle.group_norm(g, batch, xa.data(), xb.data(), gamma.data(), beta.data(), unused.data(), statistics.data());
    t.check({xa, xb, gamma, beta}, {},
            {{t.poison(na + nb), few<T>(2)}, {t.poison(batch * 4 * 2), 64 * float_epsilon, true}},
            [&](auto& on, auto& s) { on.group_norm(g, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.y[0], s.sums[0]); });
    for (const into how : {into::write, into::add}) {
        t.check({xa, xb, gamma, beta, dy}, {rounded<float>(statistics)},
                {{how == into::add ? t.normal(na) : t.poison(na), few<T>(3)},
                 {t.poison(nb), few<T>(3)},
                 {t.normal(16), 256 * float_epsilon, true},
                 {t.normal(16), 256 * float_epsilon, true}},
                [&](auto& on, auto& s) {
                    on.group_norm_backward(g, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.a[0], s.x[4], s.y[0], s.y[1],
                                           s.sums[0], s.sums[1], how);
                });
    }

    const pulse::layer_norm_shape l{24, 1e-6};
    const int rows = 5;
    const doubles x = t.normal(rows * 24);
    const doubles dz = t.normal(rows * 24);
    const doubles scale = t.normal(24);
    const doubles shift = t.normal(24);
    doubles row_statistics(rows * 2);
    doubles z(rows * 24);
    t.oracle.layer_norm(l, rows, x.data(), scale.data(), shift.data(), z.data(), row_statistics.data());
    t.check({x, scale, shift}, {}, {{t.poison(rows * 24), few<T>(2)}, {t.poison(rows * 2), 64 * float_epsilon, true}},
            [&](auto& on, auto& s) { on.layer_norm(l, rows, s.x[0], s.x[1], s.x[2], s.y[0], s.sums[0]); });
    for (const into how : {into::write, into::add}) {
        t.check({x, scale, dz}, {rounded<float>(row_statistics)},
                {{how == into::add ? t.normal(rows * 24) : t.poison(rows * 24), few<T>(3)},
                 {t.normal(24), 256 * float_epsilon, true},
                 {t.normal(24), 256 * float_epsilon, true}},
                [&](auto& on, auto& s) {
                    on.layer_norm_backward(l, rows, s.x[0], s.x[1], s.a[0], s.x[2], s.y[0], s.sums[0], s.sums[1], how);
                });
    }
}

template <class P>
void check_attention(operation_trial<P>& t) {
    using T = typename P::scalar;
    const double error = P::tensor_float ? 1e-2 : 4.0 * few<T>(3);
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
        t.oracle.attention(a, batch, q.data(), k.data(), v.data(), o.data(), lse.data());
        t.check({q, k, v}, {}, {{t.poison(n), error}, {t.poison(lines), P::tensor_float ? 1e-2 : 1e-5, true}},
                [&](auto& on, auto& s) { on.attention(a, batch, s.x[0], s.x[1], s.x[2], s.y[0], s.sums[0]); });
        t.check({q, k, v, rounded<T>(o), dout}, {rounded<float>(lse)},
                {{t.poison(n), 2 * error}, {t.poison(keys), 2 * error}, {t.poison(keys), 2 * error}},
                [&](auto& on, auto& s) {
                    on.attention_backward(a, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.a[0], s.x[4], s.y[0], s.y[1],
                                          s.y[2]);
                });
    }
}

template <class P>
void check_pointwise(operation_trial<P>& t) {
    using T = typename P::scalar;
    const std::int64_t n = 37;
    const doubles x = t.normal(n);
    const doubles dy = t.normal(n);
    t.check({x}, {}, {{t.poison(n), few<T>(1)}, {t.poison(n), few<T>(1)}, {t.poison(n), 0.0}, {t.poison(n), 0.0}},
            [&](auto& on, auto& s) {
                on.silu(n, s.x[0], s.y[0]);
                on.gelu(n, s.x[0], s.y[1]);
                on.copy(n, s.x[0], s.y[2]);
                on.fill(n, 0.5F, s.y[3]);
            });
    for (const into how : {into::write, into::add}) {
        const auto before = [&] { return how == into::add ? t.normal(n) : t.poison(n); };
        t.check({x, dy}, {}, {{before(), few<T>(2)}, {before(), few<T>(2)}}, [&](auto& on, auto& s) {
            on.silu_backward(n, s.x[0], s.x[1], s.y[0], how);
            on.gelu_backward(n, s.x[0], s.x[1], s.y[1], how);
        });
    }
    const std::int64_t rows = 4;
    t.check({t.normal(rows * 2 * 6), t.normal(rows * 6)}, {},
            {{t.poison(rows * 6), few<T>(2)}, {t.poison(rows * 2 * 6), few<T>(2)}, {t.normal(n), few<T>(1)}},
            [&](auto& on, auto& s) {
                on.geglu(rows, 6, s.x[0], s.y[0]);
                on.geglu_backward(rows, 6, s.x[0], s.x[1], s.y[1]);
                on.add(rows * 6, s.x[1], s.y[2]);
            });
}

template <class P>
void check_movement(operation_trial<P>& t) {
    using T = typename P::scalar;
    const pulse::patch_shape p{2, 3, 2, 3, 1};
    const int batch = 2;
    const std::int64_t tokens = batch * p.tokens() * p.features();
    const std::int64_t image = batch * p.image_elements();
    t.check({t.normal(tokens), t.normal(image)}, {}, {{t.poison(image), 0.0}, {t.poison(tokens), 0.0}},
            [&](auto& on, auto& s) {
                on.patches_to_image(p, batch, s.x[0], s.y[0]);
                on.image_to_patches(p, batch, s.x[1], s.y[1]);
            });
    const int height = 3;
    const int width = 2;
    const int channels = 10;
    const std::int64_t small = batch * height * width * channels;
    t.check({t.normal(small), t.normal(4 * small), t.normal(batch * channels)}, {},
            {{t.poison(4 * small), 0.0},
             {t.poison(small), few<T>(2)},
             {t.normal(small), few<T>(1)},
             {t.poison(batch * channels), few<T>(2)},
             {t.normal(channels), 64 * float_epsilon, true}},
            [&](auto& on, auto& s) {
                on.upsample_nearest(batch, height, width, channels, s.x[0], s.y[0]);
                on.upsample_nearest_backward(batch, height, width, channels, s.x[1], s.y[1]);
                on.add_per_sample(batch, height * width, channels, s.x[2], s.y[2]);
                on.sum_pixels(batch, height * width, channels, s.x[0], s.y[3]);
                on.sum_rows(std::int64_t{batch} * height * width, std::int64_t{channels}, s.x[0], s.sums[0]);
            });
    // 4 rows of 5, 7 apart, to 6 apart: what lies between stays
    t.check({t.normal(28)}, {}, {{t.normal(24), 0.0}},
            [&](auto& on, auto& s) { on.copy_rows(4, 5, s.x[0], 7, s.y[0], 6); });
    t.check({}, {{0.0, 17.0, 999.0}}, {{t.poison(3 * 8), few<T>(1)}, {t.poison(3 * 8), few<T>(1)}},
            [&](auto& on, auto& s) {
                on.sinusoid(3, 8, true, 0.0, s.a[0], s.y[0]);
                on.sinusoid(3, 8, false, 1.0, s.a[0], s.y[1]);
            });
}

template <class P>
void check_conditioned(operation_trial<P>& t) {
    using T = typename P::scalar;
    const int batch = 2;
    const pulse::adaptive_norm_shape m{12, 3, 20, 1e-6};
    const std::int64_t n = batch * 3 * 12;
    const doubles x = t.normal(n);
    const doubles gamma = t.normal(12);
    const doubles beta = t.normal(12);
    const doubles scale = t.normal(20 + 12);
    const doubles shift = t.normal(20 + 12);
    const doubles dy = t.normal(n);
    doubles statistics(static_cast<std::size_t>(batch * 3 * 2));
    doubles unused(static_cast<std::size_t>(n));
    t.oracle.adaptive_norm(m, batch, x.data(), gamma.data(), beta.data(), scale.data(), shift.data(), unused.data(),
                           statistics.data());
    t.check({x, gamma, beta, scale, shift}, {}, {{t.poison(n), few<T>(2)}, {t.poison(12), 64 * float_epsilon, true}},
            [&](auto& on, auto& s) {
                on.adaptive_norm(m, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.x[4], s.y[0], s.sums[0]);
            });
    t.check({x, gamma, beta, scale, dy}, {rounded<float>(statistics)},
            {{t.normal(n), few<T>(3)},
             {t.normal(12), 256 * float_epsilon, true},
             {t.normal(12), 256 * float_epsilon, true},
             {t.normal(20 + 12), few<T>(2)},
             {t.normal(20 + 12), few<T>(2)}},
            [&](auto& on, auto& s) {
                on.adaptive_norm_backward(m, batch, s.x[0], s.x[1], s.x[2], s.x[3], s.a[0], s.x[4], s.y[0], s.sums[0],
                                          s.sums[1], s.y[1], s.y[2], into::add);
            });
    t.check({x, dy}, {}, {{t.poison(n), few<T>(1)}, {t.normal(n), few<T>(2)}, {t.poison(n), few<T>(1)}},
            [&](auto& on, auto& s) {
                on.gelu_tanh(n, s.x[0], s.y[0]);
                on.gelu_tanh_backward(n, s.x[0], s.x[1], s.y[1], into::add);
                on.scale(n, -2.5F, s.x[0], s.y[2]);
            });
    const pulse::rotary_shape turn{3, 2, 2, 8, 5.0};
    const std::int64_t turned = batch * 6 * 16;
    t.check({t.normal(turned)}, {}, {{t.poison(turned), few<T>(1)}, {t.poison(turned), few<T>(1)}},
            [&](auto& on, auto& s) {
                on.rotary(turn, batch, s.x[0], s.y[0]);
                on.rotary_backward(turn, batch, s.x[0], s.y[1]);
            });
    for (const pulse::resample_shape& grids :
         {pulse::resample_shape{2, 3, 4, 5, 6, 2}, {4, 4, 3, 7, 3, 1}, {5, 2, 1, 2, 4, 0}, {1, 1, 2, 2, 1, 1}}) {
        const std::int64_t from = grids.from_tokens() * grids.features;
        const std::int64_t to = batch * grids.tokens() * grids.features;
        t.check({t.normal(from), t.normal(to)}, {},
                {{t.normal(to), few<T>(3)}, {t.normal(from), 64 * float_epsilon, true}}, [&](auto& on, auto& s) {
                    on.add_resampled(grids, batch, s.x[0], s.y[0]);
                    on.resampled_sums(grids, batch, s.x[1], s.sums[0]);
                });
    }
    const pulse::embedding_shape table{5, 6};
    t.check({t.normal(5 * 6), t.normal(4 * 6)}, {{3.0, 0.0, 3.0, 4.0}},
            {{t.poison(4 * 6), 0.0}, {t.normal(5 * 6), 4 * float_epsilon, true}}, [&](auto& on, auto& s) {
                on.embedding(table, 4, s.a[0], s.x[0], s.y[0]);
                on.embedding_backward_weight(table, 4, s.a[0], s.x[1], s.sums[0]);
            });
    t.check({t.normal(3 * 5), t.normal(2 * 3 * 5)}, {{1.0, 0.0, 1.0, 0.0, 0.0, 1.0}},
            {{t.normal(2 * 3 * 5), 0.0}, {t.poison(2 * 3 * 5), 0.0}, {t.normal(3 * 5), 4 * float_epsilon, true}},
            [&](auto& on, auto& s) {
                on.replace_padding(2, 3, 5, s.a[0], s.x[0], s.y[0]);
                on.replace_padding_backward(2, 3, 5, s.a[0], s.x[1], s.y[1], s.sums[0]);
            });
}

template <class P>
void check_operations(unsigned seed) {
    operation_trial<P> trial{seed};
    check_norms(trial);
    check_attention(trial);
    check_conditioned(trial);
    check_pointwise(trial);
    check_movement(trial);
}

} // namespace backend_tests

using namespace backend_tests;

// The kernels of fp16 are those of bf16 in another type, and tf32 differs from fp32 in products and attention alone:
// they are compared where these are.
TEST_CASE("backend: norms, attention, activations and movement are what the reference means") {
    check_operations<cuda::bf16>(41);
#ifndef __CUDACC__ // nvcc takes minutes for each type of every kernel; the kernels have tests of their own
    check_operations<cuda::fp32>(44);
#endif
}
