#pragma once

#include <cstdint>
#include <utility>

#include <doctest/doctest.h>

#include <pulse/nn/residual_sums.hpp>
#include <pulse/runtime/residual_sums.hpp>

#include <backend_trial.hpp>
#include <drawn_shapes.hpp>
#ifndef __CUDACC__
#include <emulated/cublas_lt.hpp>
#include <emulated/cudnn.hpp>
#include <emulated/runtime.hpp>
#endif

// A named namespace, as all test files may form one translation unit.
namespace residual_tests {

namespace cuda = pulse::cuda;
using pulse::conv2d_shape;
using pulse::into;
using namespace pulse::test;
namespace nn = pulse::nn;

/// Sums fused into a convolution or a product must equal the reference, which computes each summand on its own.
template <class P>
void check_sums_of_images(const convolution_draw& draws, const cuda::engine_options& options = {}) {
    using T = typename P::scalar;
    backend_trial<P> trial{draws.seed, options};
    source& draw = trial.draw;
    for (const drawn_convolution& one : draw_convolutions(draws)) {
        const conv2d_shape& s = one.shape;
        const int batch = one.batch;
        CAPTURE(std::string{P::name});
        CAPTURE(batch);
        CAPTURE(s.in_channels);
        CAPTURE(s.out_channels);
        CAPTURE(s.kernel);
        CAPTURE(one.biased);
        CAPTURE(one.offset);
        const std::int64_t n = batch * s.out_elements();
        trial.offset = one.offset;
        const auto x = draw.normal<T>(batch * s.in_elements());
        const auto w = draw.normal<T>(s.weight_elements());
        const auto b = one.biased ? draw.normal<T>(s.out_channels) : doubles{};
        const auto residual = draw.normal<T>(n);
        const auto t = draw.normal<T>(std::int64_t{batch} * s.out_channels);
        const double error = trial.sum_error(s.in_channels * s.kernel * s.kernel + 1);
        trial.template check_sums<T>({x, w, b, residual}, n, false, error, [&](auto& on, const auto& in, auto* y) {
            nn::conv2d_onto(on, s, batch, in[0], in[1], in[2], in[3], y);
        });
        trial.template check_sums<T>({x, w, b, t}, n, false, error, [&](auto& on, const auto& in, auto* y) {
            nn::conv2d_per_sample(on, s, batch, in[0], in[1], in[2], in[3], y);
        });
        const pulse::linear_shape matrix{s.in_channels, s.out_channels};
        const std::int64_t rows = std::int64_t{batch} * s.in_height * s.in_width;
        const auto onto = draw.normal<T>(rows * s.out_channels);
        trial.template check_sums<T>({x, w, b, onto}, rows * s.out_channels, false, trial.sum_error(s.in_channels + 1),
                                     [&](auto& on, const auto& in, auto* y) {
                                         nn::linear_onto(on, matrix, rows, in[0], in[1], in[2], in[3], y);
                                     });
    }
}

/// A norm's backward pass with a residual must give the bits of adding to a copy of the residual. `offsets`: of the
/// residual and of dx from an aligned address.
template <class P, class Backward>
void check_norm(source& draw, cuda::backend<P>& on, std::int64_t n, std::int64_t affine, Backward backward) {
    using T = typename P::scalar;
    const device_queue waiting;
    const auto residual = draw.normal<T>(n);
    for (const auto& offsets : {std::pair{0, 0}, {1, 0}, {0, 1}}) {
        const int from = offsets.first;
        const int to = offsets.second;
        CAPTURE(from);
        CAPTURE(to);
        const tensor<T> elsewhere(residual, from);
        const tensor<T> dx(n, to);
        const tensor<T> wanted(residual, to + from); // vectorised, or not, like the other variant
        const tensor<float> sums(2 * affine);
        const tensor<float> wanted_sums(2 * affine);
        backward(dx.data(), sums.data(), into::add, static_cast<const T*>(elsewhere.data()));
        backward(wanted.data(), wanted_sums.data(), into::add, static_cast<const T*>(nullptr));
        on.synchronize();
        CHECK(dx.download(waiting) == wanted.download(waiting));
        CHECK(sums.download(waiting) == wanted_sums.download(waiting));
        CHECK(elsewhere.download(waiting) == residual);
        CHECK(dx.intact(waiting));
    }
}

template <class P>
void check_norms(unsigned seed) {
    using T = typename P::scalar;
    cuda::backend<P> on;
    source draw{seed};
    const auto tensor_of = [&](std::int64_t n) { return tensor<T>(draw.normal<T>(n)); };
    const auto written = [](float* to) { return pulse::gradient_place<float>{to, into::write}; };
    constexpr int batch = 2;
    for (const auto& sizes : {std::pair{24, 5}, {40, 37}, {7, 3}, {8 * 32 * 6, 3}}) {
        const int features = sizes.first;
        const int rows = sizes.second;
        CAPTURE(features);
        const tensor<T> x = tensor_of(batch * rows * features);
        const tensor<T> dy = tensor_of(batch * rows * features);
        const tensor<T> gamma = tensor_of(features);
        const tensor<T> scale = tensor_of(batch * features);
        const tensor<T> dmodulation(2 * batch * features);
        const tensor<float> statistics(doubles(static_cast<std::size_t>(2 * batch * rows), 0.5));
        check_norm<P>(draw, on, batch * rows * features, features, [&](T* dx, float* sums, auto... how) {
            on.layer_norm_backward({features, 1e-5}, batch * rows, x.data(), gamma.data(), statistics.data(), dy.data(),
                                   dx, written(sums), written(sums + features), how...);
        });
        check_norm<P>(draw, on, batch * rows * features, features, [&](T* dx, float* sums, auto... how) {
            on.adaptive_norm_backward({features, rows, features, 1e-5}, batch, x.data(), gamma.data(), gamma.data(),
                                      scale.data(), statistics.data(), dy.data(), dx, written(sums),
                                      written(sums + features), dmodulation.data(),
                                      dmodulation.data() + batch * features, how...);
        });
    }
    // fits in shared memory, or is too large for it
    for (const auto& sizes : {std::pair{16, 9}, {6, 5}, {48, 4096}}) {
        const int channels = sizes.first;
        const int pixels = sizes.second;
        CAPTURE(channels);
        const pulse::group_norm_shape s{channels, 0, 2, pixels, 1e-5, true};
        const tensor<T> x = tensor_of(batch * pixels * channels);
        const tensor<T> dy = tensor_of(batch * pixels * channels);
        const tensor<T> affine = tensor_of(2 * channels);
        const tensor<float> statistics(doubles(std::size_t{batch} * 2 * 2, 0.5));
        check_norm<P>(draw, on, batch * pixels * channels, channels, [&](T* dx, float* sums, auto... how) {
            on.group_norm_backward(s, batch, x.data(), nullptr, affine.data(), affine.data() + channels,
                                   statistics.data(), dy.data(), dx, nullptr, written(sums), written(sums + channels),
                                   how...);
        });
    }
}

} // namespace residual_tests

TEST_CASE("backend: additions fused into a convolution or a product equal the reference") {
    using namespace residual_tests;
    check_sums_of_images<pulse::cuda::bf16>(bf16_convolutions);
    check_sums_of_images<pulse::cuda::fp16>(fp16_convolutions);
    check_sums_of_images<pulse::cuda::tf32>(tf32_convolutions);
    check_sums_of_images<pulse::cuda::fp32>(fp32_convolutions);
}

TEST_CASE("backend: a norm's backward pass adds a separate residual exactly like one in place") {
    using namespace residual_tests;
    check_norms<pulse::cuda::bf16>(61);
    check_norms<pulse::cuda::fp16>(62);
    check_norms<pulse::cuda::fp32>(63);
}

#ifndef __CUDACC__
TEST_CASE("backend: sums are the sums of the reference where cuDNN and cuBLASLt leave them to kernels") {
    using namespace residual_tests;
    pulse::cuda::engine_options options;
    options.store = pulse::cuda::engine_store{};
    emulated_cuda::cudnn::set_fused(false);
    emulated_cuda::cublas_lt::set_bias_alignment(32); // more than products are aligned to
    check_sums_of_images<pulse::cuda::bf16>(bf16_convolutions, options);
    check_sums_of_images<pulse::cuda::fp32>(fp32_convolutions, options);
    emulated_cuda::cudnn::set_fused(true);
    emulated_cuda::cublas_lt::set_bias_alignment(0);
}

TEST_CASE("backend: adding to the result of a convolution, a product or a norm needs no extra kernel") {
    using namespace residual_tests;
    using T = pulse::cuda::bf16::scalar;
    pulse::cuda::backend<pulse::cuda::bf16> on;
    source draw{9};
    const auto tensor_of = [&](std::int64_t n) { return tensor<T>(draw.normal<T>(n)); };
    constexpr conv2d_shape s{.in_channels = 8, .out_channels = 8, .in_height = 4, .in_width = 4};
    constexpr int batch = 2;
    constexpr std::int64_t n = batch * 16 * 8;
    const tensor<T> x = tensor_of(n);
    const tensor<T> w = tensor_of(s.weight_elements());
    const tensor<T> b = tensor_of(8);
    const tensor<T> t = tensor_of(std::int64_t{batch} * 8);
    const tensor<T> residual = tensor_of(n);
    const tensor<T> y(n);
    const tensor<float> statistics(doubles(std::size_t{2} * batch * 16, 0.5));
    const tensor<float> sums(16);
    const auto kernels = [&](const auto& ask) {
        ask(); // chooses the engine
        on.synchronize();
        const std::int64_t before = emulated_cuda::executed_kernels();
        ask();
        on.synchronize();
        return emulated_cuda::executed_kernels() - before;
    };
    CHECK(kernels([&] {
              nn::linear_onto(on, {8, 8}, 32, x.data(), w.data(), b.data(), residual.data(), y.data());
          }) == 1);
    // less aligned than the result
    CHECK(kernels([&] {
              nn::linear_onto(on, {8, 8}, 31, x.data(), w.data(), b.data(), residual.data() + 1, y.data());
          }) == 1);
    // the algorithm is the one that an aligned residual gets
    const auto runs_of_algorithm_1 = [&](const T* onto) {
        const std::int64_t before = emulated_cuda::cublas_lt::executed(1);
        nn::linear_onto(on, {8, 8}, 31, x.data(), w.data(), b.data(), onto, y.data());
        on.synchronize();
        return emulated_cuda::cublas_lt::executed(1) - before;
    };
    CHECK(runs_of_algorithm_1(residual.data()) == 1);
    CHECK(runs_of_algorithm_1(residual.data() + 1) == 1);
    CHECK(kernels([&] { nn::conv2d_onto(on, s, batch, x.data(), w.data(), b.data(), residual.data(), y.data()); }) ==
          1);
    CHECK(kernels([&] { nn::conv2d_per_sample(on, s, batch, x.data(), w.data(), b.data(), t.data(), y.data()); }) == 1);
    const auto norm_kernels = [&](const T* onto) {
        return kernels([&] {
            nn::norm_backward_onto(on, n, onto, y.data(), [&](auto... how) {
                on.layer_norm_backward({8, 1e-5}, 32, x.data(), b.data(), statistics.data(), residual.data(), y.data(),
                                       sums.data(), sums.data() + 8, how...);
            });
        });
    };
    CHECK(norm_kernels(x.data()) == norm_kernels(nullptr));
}
#endif
