#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/nn/linear_batch.hpp>

#include <support/operations/products.hpp>

#include <backend_trial.hpp>
#include <drawn_shapes.hpp>

namespace cuda = pulse::cuda;
using pulse::conv2d_shape;
using pulse::into;
using pulse::linear_shape;
using namespace pulse::test;

namespace backend_tests {

template <class P>
void check_convolutions(const convolution_draw& draws, const cuda::engine_options& options = {}) {
    backend_trial<P> trial{draws.seed, options};
    for (const drawn_convolution& one : draw_convolutions(draws)) {
        CAPTURE(std::string{P::name});
        trial.offset = one.offset;
        check_convolution(trial, one.shape, one.batch, one.second, one.adds, one.biased);
    }
}

template <class P>
void check_products(unsigned seed, int rounds, const cuda::engine_options& options = {}) {
    backend_trial<P> trial{seed, options};
    source& draw = trial.draw;
    for (int round = 0; round != rounds; ++round) {
        const linear_shape s{draw.between(1, 40), draw.between(1, 40)};
        const std::int64_t rows = draw.between(1, 50);
        trial.offset = draw.between(0, 3);
        check_linear(trial, s, rows, round % 2 == 0, draw.between(0, 2) != 0);
    }
}

/// Checks linear layers that share an input, with `gap` elements between their weights.
template <class P>
void check_batches(unsigned seed, int rounds, const cuda::engine_options& options = {}) {
    using T = typename P::scalar;
    backend_trial<P> trial{seed, options};
    source& draw = trial.draw;
    for (int round = 0; round != rounds; ++round) {
        const bool odd = round % 3 == 2; // otherwise strides are multiples of 16 bytes
        const int step = odd ? 1 : 8;
        const linear_shape s{step * draw.between(1, 5), step * draw.between(1, 5)};
        const std::int64_t rows = draw.between(1, 50);
        const std::int64_t gap = step * draw.between(0, 2);
        const int count = draw.between(2, 3);
        trial.offset = draw.between(0, 3);
        CAPTURE(s.in_features);
        CAPTURE(s.out_features);
        CAPTURE(rows);
        CAPTURE(gap);
        CAPTURE(count);
        CAPTURE(trial.offset);
        const std::int64_t weights = std::int64_t{s.in_features} * s.out_features + gap;
        const std::int64_t results = rows * s.out_features;
        const auto x = draw.normal<T>(rows * s.in_features);
        const auto w = draw.normal<T>(3 * weights);
        const auto dy = draw.normal<T>(3 * results);
        trial.template check_sums<T>(
            {x, w}, count * results, false, trial.sum_error(s.in_features), [&](auto& on, const auto& in, auto* y) {
                if (count == 2) {
                    return pulse::nn::linear_batch(on, s, rows, in[0], {{in[1], y}, {in[1] + weights, y + results}});
                }
                pulse::nn::linear_batch(
                    on, s, rows, in[0],
                    {{in[1], y}, {in[1] + weights, y + results}, {in[1] + 2 * weights, y + 2 * results}});
            });
        trial.template check_sums<float>(
            {x, dy}, 3 * weights, true, trial.sum_error(static_cast<double>(rows)),
            [&](auto& on, const auto& in, auto* dw) {
                for (int twice = 0; twice != 2; ++twice) {
                    pulse::nn::linear_batch_backward_weight(
                        on, s, rows, in[0],
                        {{dw, in[1]}, {dw + weights, in[1] + results}, {dw + 2 * weights, in[1] + 2 * results}});
                }
            });
    }
}

/// Adds gradients of 27 rows to `channels` of a weight's `all` channels, starting at `first`.
template <class T>
void check_gradient(source& draw, int all, int first, int channels, int offset) {
    CAPTURE(all);
    CAPTURE(channels);
    CAPTURE(offset);
    const device_queue queue;
    doubles gradient = draw.normal<T>(std::int64_t{27} * channels);
    for (double& g : gradient) { g = std::round(8.0 * g); }
    doubles sum = draw.normal<float>(std::int64_t{27} * all);
    const tensor<T> from(gradient, offset);
    const tensor<float> to(sum, offset);
    cuda::add_gradient(queue.on(), 27, channels, from.data(), to.data() + first, all);
    for (int row = 0; row != 27; ++row) {
        for (int c = 0; c != channels; ++c) {
            sum[static_cast<std::size_t>(row * all + first + c)] +=
                gradient[static_cast<std::size_t>(row * channels + c)];
        }
    }
    CHECK(worst<float>(to.download(queue), sum, float_epsilon) < 1.0);
    CHECK(to.intact(queue));
}

} // namespace backend_tests

using namespace backend_tests;

TEST_CASE("gradients of a weight are added, whole and of some of its channels") {
    source draw{5};
    for (const int offset : {0, 1}) {
        for (const auto& [all, first, channels] : {std::array{24, 0, 24}, {48, 8, 24}, {150, 20, 101}}) {
            check_gradient<__nv_bfloat16>(draw, all, first, channels, offset);
            check_gradient<float>(draw, all, first, channels, offset);
        }
    }
}

TEST_CASE("backend: convolutions of every kind are what the reference means") {
    check_convolutions<cuda::bf16>(bf16_convolutions);
    check_convolutions<cuda::fp16>(fp16_convolutions);
    check_convolutions<cuda::tf32>(tf32_convolutions);
    check_convolutions<cuda::fp32>(fp32_convolutions);
}

TEST_CASE("backend: linear layers of every kind are what the reference means") {
    check_products<cuda::bf16>(21, 12);
    check_products<cuda::fp16>(22, 12);
    check_products<cuda::tf32>(23, 8);
    check_products<cuda::fp32>(24, 12);
}

TEST_CASE("backend: linear layers of one input are at once what the reference makes of each") {
    check_batches<cuda::bf16>(41, 9);
    check_batches<cuda::fp16>(42, 6);
    check_batches<cuda::tf32>(43, 6);
    check_batches<cuda::fp32>(44, 9);
}

TEST_CASE("backend: what is chosen by timing computes the same") {
    cuda::engine_options options;
    options.store = cuda::engine_store{};
    options.candidates = 4;
    check_convolutions<cuda::bf16>(timed_bf16_convolutions, options);
    check_convolutions<cuda::fp32>(timed_fp32_convolutions, options);
    check_products<cuda::bf16>(33, 2, options);
    check_batches<cuda::bf16>(34, 3, options);
}
