#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/nn/linear_batch.hpp>

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
    using T = typename P::scalar;
    backend_trial<P> trial{draws.seed, options};
    source& draw = trial.draw;
    for (const drawn_convolution& one : draw_convolutions(draws)) {
        const conv2d_shape& s = one.shape;
        const int batch = one.batch;
        const int second = one.second;
        const bool adds = one.adds;
        const bool biased = one.biased;
        const int offset = one.offset;
        const int first = s.in_channels - second;
        const into how = adds ? into::add : into::write;
        std::string operation;
        CAPTURE(operation);
        CAPTURE(std::string{P::name});
        CAPTURE(batch);
        CAPTURE(s.in_channels);
        CAPTURE(s.out_channels);
        CAPTURE(s.kernel);
        CAPTURE(s.stride);
        CAPTURE(s.pad_before);
        CAPTURE(s.pad_after);
        CAPTURE(s.in_height);
        CAPTURE(s.in_width);
        CAPTURE(second);
        CAPTURE(adds);
        CAPTURE(biased);
        CAPTURE(offset);
        const std::int64_t pixels = std::int64_t{s.in_height} * s.in_width;
        const auto x = draw.normal<T>(batch * s.in_elements());
        const auto xa = draw.normal<T>(batch * pixels * first);
        const auto xb = draw.normal<T>(batch * pixels * second);
        const auto w = draw.normal<T>(s.weight_elements());
        const auto b = biased ? draw.normal<T>(s.out_channels) : doubles{};
        const auto dy = draw.normal<T>(batch * s.out_elements());
        const std::int64_t taps = std::int64_t{s.kernel} * s.kernel;
        const double forward = sum_error<P>(s.in_channels * taps + 2);
        const double back = sum_error<P>(s.out_channels * taps + 1);
        // gradients are rounded to T before they are added
        const double weight = sum_error<P>(batch * s.out_elements() / s.out_channels + 1) +
                              (sizeof(T) < sizeof(float) ? rounding_error<T> : 0.0);
        operation = "forward";
        trial.template check_sums<T>(
            {x, w, b}, batch * s.out_elements(), adds, forward, offset,
            [&](auto& on, const auto& in, auto* y) { on.conv2d(s, batch, in[0], in[1], in[2], y, how); });
        operation = "input gradient";
        trial.template check_sums<T>(
            {dy, w}, batch * s.in_elements(), adds, back, offset,
            [&](auto& on, const auto& in, auto* dx) { on.conv2d_backward_input(s, batch, in[0], in[1], dx, how); });
        operation = "weight gradient";
        trial.template check_sums<float>({x, dy}, s.weight_elements() + s.out_channels, true, weight, offset,
                                         [&](auto& on, const auto& in, auto* dw) {
                                             auto* const db = biased ? dw + s.weight_elements() : nullptr;
                                             on.conv2d_backward_weight(s, batch, in[0], in[1], dw, db);
                                             on.conv2d_backward_weight(s, batch, in[0], in[1], dw,
                                                                       db); // microbatches accumulate
                                         });
        operation = "pair";
        trial.template check_sums<T>({xa, xb, w, b}, batch * s.out_elements(), adds, forward, offset,
                                     [&](auto& on, const auto& in, auto* y) {
                                         on.conv2d_pair(s, second, batch, in[0], in[1], in[2], in[3], y, how);
                                     });
        operation = "input gradient of a pair";
        trial.template check_sums<T>({dy, w}, batch * s.in_elements(), adds, back, offset,
                                     [&](auto& on, const auto& in, auto* dx) {
                                         auto* const dxb = second != 0 ? dx + batch * pixels * first : nullptr;
                                         on.conv2d_pair_backward_input(s, second, batch, in[0], in[1], dx, dxb, how);
                                     });
        operation = "weight gradient of a pair";
        trial.template check_sums<float>({xa, xb, dy}, s.weight_elements() + s.out_channels, true, weight, offset,
                                         [&](auto& on, const auto& in, auto* dw) {
                                             auto* const db = biased ? dw + s.weight_elements() : nullptr;
                                             on.conv2d_pair_backward_weight(s, second, batch, in[0], in[1], in[2], dw,
                                                                            db);
                                         });
    }
}

template <class P>
void check_products(unsigned seed, int rounds, const cuda::engine_options& options = {}) {
    using T = typename P::scalar;
    backend_trial<P> trial{seed, options};
    source& draw = trial.draw;
    for (int round = 0; round != rounds; ++round) {
        const linear_shape s{draw.between(1, 40), draw.between(1, 40)};
        const std::int64_t rows = draw.between(1, 50);
        const bool adds = round % 2 == 0;
        const into how = adds ? into::add : into::write;
        const int offset = draw.between(0, 3);
        const bool biased = draw.between(0, 2) != 0;
        CAPTURE(s.in_features);
        CAPTURE(s.out_features);
        CAPTURE(rows);
        CAPTURE(adds);
        CAPTURE(biased);
        CAPTURE(offset);
        const auto x = draw.normal<T>(rows * s.in_features);
        const auto w = draw.normal<T>(std::int64_t{s.in_features} * s.out_features);
        const auto b = biased ? draw.normal<T>(s.out_features) : doubles{};
        const auto dy = draw.normal<T>(rows * s.out_features);
        trial.template check_sums<T>(
            {x, w, b}, rows * s.out_features, adds, sum_error<P>(s.in_features + 2), offset,
            [&](auto& on, const auto& in, auto* y) { on.linear(s, rows, in[0], in[1], in[2], y, how); });
        trial.template check_sums<T>(
            {dy, w}, rows * s.in_features, adds, sum_error<P>(s.out_features + 1), offset,
            [&](auto& on, const auto& in, auto* dx) { on.linear_backward_input(s, rows, in[0], in[1], dx, how); });
        const std::int64_t weights = std::int64_t{s.in_features} * s.out_features;
        trial.template check_sums<float>({x, dy}, weights + s.out_features, true, sum_error<P>(rows + 1), offset,
                                         [&](auto& on, const auto& in, auto* dw) {
                                             auto* const db = biased ? dw + weights : nullptr;
                                             on.linear_backward_weight(s, rows, in[0], in[1], dw, db);
                                             on.linear_backward_weight(s, rows, in[0], in[1], dw, db);
                                         });
    }
}

/// Linear layers of one input, whose weights have `gap` elements between them.
template <class P>
void check_batches(unsigned seed, int rounds, const cuda::engine_options& options = {}) {
    using T = typename P::scalar;
    backend_trial<P> trial{seed, options};
    source& draw = trial.draw;
    for (int round = 0; round != rounds; ++round) {
        const bool odd = round % 3 == 2; // else distances are multiples of 16 bytes
        const int step = odd ? 1 : 8;
        const linear_shape s{step * draw.between(1, 5), step * draw.between(1, 5)};
        const std::int64_t rows = draw.between(1, 50);
        const std::int64_t gap = step * draw.between(0, 2);
        const int count = draw.between(2, 3);
        const int offset = draw.between(0, 3);
        CAPTURE(s.in_features);
        CAPTURE(s.out_features);
        CAPTURE(rows);
        CAPTURE(gap);
        CAPTURE(count);
        CAPTURE(offset);
        const std::int64_t weights = std::int64_t{s.in_features} * s.out_features + gap;
        const std::int64_t results = rows * s.out_features;
        const auto x = draw.normal<T>(rows * s.in_features);
        const auto w = draw.normal<T>(3 * weights);
        const auto dy = draw.normal<T>(3 * results);
        trial.template check_sums<T>(
            {x, w}, count * results, false, sum_error<P>(s.in_features + 2), offset,
            [&](auto& on, const auto& in, auto* y) {
                if (count == 2) {
                    return pulse::nn::linear_batch(on, s, rows, in[0], {{in[1], y}, {in[1] + weights, y + results}});
                }
                pulse::nn::linear_batch(
                    on, s, rows, in[0],
                    {{in[1], y}, {in[1] + weights, y + results}, {in[1] + 2 * weights, y + 2 * results}});
            });
        trial.template check_sums<float>(
            {x, dy}, 3 * weights, true, sum_error<P>(rows + 1), offset, [&](auto& on, const auto& in, auto* dw) {
                for (int twice = 0; twice != 2; ++twice) {
                    pulse::nn::linear_batch_backward_weight(
                        on, s, rows, in[0],
                        {{dw, in[1]}, {dw + weights, in[1] + results}, {dw + 2 * weights, in[1] + 2 * results}});
                }
            });
    }
}

/// Gradients of 27 rows of a weight, added to so many of its channels from one on.
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
