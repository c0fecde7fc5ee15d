#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/nn/block.hpp>
#include <pulse/nn/linear_batch.hpp>
#include <pulse/nn/pointwise.hpp>

#include <backend_trial.hpp>
#include <drawn_shapes.hpp>

namespace cuda = pulse::cuda;
using pulse::into;
using namespace pulse::test;

namespace backend_tests {

// For nvcc, too.
static_assert(pulse::writes_gradients<pulse::nn::block<"linear", pulse::nn::linear{2, 3}>>);

using float_gradient = pulse::gradient_place<float>;

/// op(gradient_place) makes n gradients. Written over what is no number, and then added to, they are those that are
/// added to zeros, bit for bit but for the sign of 0.
template <class P, class Op>
void check_written(const backend_trial<P>& t, std::int64_t n, int offset, const Op& op) {
    const tensor<float> added(doubles(static_cast<std::size_t>(n)), offset);
    const tensor<float> written(doubles(static_cast<std::size_t>(n), std::numeric_limits<double>::quiet_NaN()), offset);
    for (const into how : {into::write, into::add}) {
        op(float_gradient{added.data()});
        op(float_gradient{written.data(), how});
        CHECK(t.got(written) == t.got(added));
    }
}

template <class P>
void check_written_products(unsigned seed, const convolution_draw& draws) {
    using T = typename P::scalar;
    backend_trial<P> t{seed};
    auto& on = t.on;
    const auto normal = [&](std::int64_t n, int offset) { return tensor<T>(t.draw.template normal<T>(n), offset); };
    for (const drawn_convolution& one : draw_convolutions(draws)) {
        const pulse::conv2d_shape& s = one.shape;
        CAPTURE(s.in_channels);
        CAPTURE(s.out_channels);
        CAPTURE(s.kernel);
        CAPTURE(one.second);
        CAPTURE(one.offset);
        const std::int64_t pixels = std::int64_t{one.batch} * s.in_height * s.in_width;
        const tensor<T> x = normal(pixels * s.in_channels, one.offset);
        const tensor<T> xb = normal(pixels * one.second, one.second == 0 ? 0 : one.offset);
        const tensor<T> dy = normal(one.batch * s.out_elements(), one.offset);
        check_written(t, s.weight_elements() + s.out_channels, one.offset, [&](const float_gradient& dw) {
            on.conv2d_backward_weight(s, one.batch, x.data(), dy.data(), dw, dw + s.weight_elements());
        });
        check_written(t, s.weight_elements() + s.out_channels, one.offset, [&](const float_gradient& dw) {
            on.conv2d_pair_backward_weight(s, one.second, one.batch, x.data(), xb.data(), dy.data(), dw,
                                           dw + s.weight_elements());
        });
    }
    for (const int offset : {0, 3}) {
        for (const pulse::linear_shape& s : {pulse::linear_shape{8, 16}, {7, 5}, {24, 8}}) {
            CAPTURE(offset);
            CAPTURE(s.in_features);
            constexpr std::int64_t rows = 19;
            const std::int64_t weights = std::int64_t{s.in_features} * s.out_features;
            const std::int64_t results = rows * s.out_features;
            const tensor<T> x = normal(rows * s.in_features, offset);
            const tensor<T> dy = normal(2 * results, offset);
            check_written(t, weights + s.out_features, offset, [&](const float_gradient& dw) {
                on.linear_backward_weight(s, rows, x.data(), dy.data(), dw, dw + weights);
            });
            check_written(t, 2 * weights, offset, [&](const float_gradient& dw) {
                pulse::nn::linear_batch_backward_weight(on, s, rows, x.data(),
                                                        {{dw, dy.data()}, {dw + weights, dy.data() + results}});
            });
        }
    }
}

template <class P>
void check_written_sums(unsigned seed) {
    using T = typename P::scalar;
    backend_trial<P> t{seed};
    auto& on = t.on;
    const auto normal = [&](std::int64_t n) { return tensor<T>(t.draw.template normal<T>(n)); };
    const auto floats = [](const doubles& values) { return tensor<float>(values); };
    constexpr int batch = 2;
    const tensor<float> statistics = floats(t.draw.template normal<float>(1000));
    const tensor<T> x = normal(4000);
    const tensor<T> y = normal(4000);
    const tensor<T> gamma = normal(2000);
    const tensor<T> dx = normal(4000);
    const tensor<T> more = normal(4000);

    const pulse::group_norm_shape g{12, 4, 4, 9, 1e-5, true};
    check_written(t, 2 * 16, 0, [&](const float_gradient& to) {
        on.group_norm_backward(g, batch, x.data(), more.data(), gamma.data(), gamma.data(), statistics.data(), y.data(),
                               dx.data(), dx.data() + 2000, to, to + 16, into::write);
    });
    for (const int features : {24, 1400}) { // one row is held by a warp's registers, the other is read again
        const pulse::layer_norm_shape l{features, 1e-6};
        for (const std::int64_t rows : {0, 2}) {
            check_written(t, 2 * features, 0, [&](const float_gradient& to) {
                on.layer_norm_backward(l, rows, x.data(), gamma.data(), statistics.data(), y.data(), dx.data(), to,
                                       to + features, into::write);
            });
        }
    }
    const pulse::adaptive_norm_shape m{12, 3, 20, 1e-6};
    check_written(t, 2 * 12, 0, [&](const float_gradient& to) {
        on.adaptive_norm_backward(m, batch, x.data(), gamma.data(), gamma.data(), gamma.data(), statistics.data(),
                                  y.data(), dx.data(), to, to + 12, more.data(), more.data() + 2000, into::write);
    });
    for (const std::int64_t rows : {0, 3, 100}) { // many are summed twice
        check_written(t, 40, 0, [&](const float_gradient& to) { on.sum_rows(rows, 40, x.data(), to); });
    }
    const pulse::resample_shape grids{2, 3, 4, 5, 6, 2};
    check_written(t, grids.from_tokens() * grids.features, 0,
                  [&](const float_gradient& to) { on.resampled_sums(grids, batch, x.data(), to); });
    const tensor<float> indices = floats({3.0, 0.0, 3.0, 4.0});
    check_written(t, 6 * 7, 0, [&](const float_gradient& to) {
        on.embedding_backward_weight({6, 7}, 4, indices.data(), x.data(), to);
    });
    const tensor<float> mask = floats({1.0, 0.0, 1.0, 0.0, 0.0, 1.0});
    check_written(t, 3 * 5, 0, [&](const float_gradient& to) {
        on.replace_padding_backward(batch, 3, 5, mask.data(), x.data(), dx.data(), to);
    });
}

} // namespace backend_tests

using namespace backend_tests;

TEST_CASE("backend: the gradients of products that a first microbatch writes are those that it adds to 0") {
    check_written_products<cuda::bf16>(51, bf16_convolutions);
    check_written_products<cuda::fp32>(52, fp32_convolutions);
}

TEST_CASE("backend: the gradients of sums that a first microbatch writes are those that it adds to 0") {
    check_written_sums<cuda::bf16>(53);
    check_written_sums<cuda::fp32>(54);
}
