#pragma once

#include <doctest/doctest.h>

#include <pulse/nn/block.hpp>
#include <pulse/nn/pointwise.hpp>

#include <support/operations/gradients.hpp>

#include <backend_trial.hpp>
#include <drawn_shapes.hpp>

namespace cuda = pulse::cuda;

using namespace pulse::test;

namespace backend_tests {

// Checked under nvcc, too.
static_assert(pulse::writes_gradients<pulse::nn::block<"linear", pulse::nn::linear{2, 3}>>);

template <class P>
void check_written_products(unsigned seed, const convolution_draw& draws) {
    backend_trial<P> t{seed};
    for (const drawn_convolution& one : draw_convolutions(draws)) {
        t.offset = one.offset;
        check_written_convolution(t, one.shape, one.batch, one.second);
    }
    for (const int offset : {0, 3}) {
        t.offset = offset;
        for (const pulse::linear_shape& s : {pulse::linear_shape{8, 16}, {7, 5}, {24, 8}}) {
            check_written_linear(t, s);
        }
    }
}

} // namespace backend_tests

using namespace backend_tests;

TEST_CASE("backend: a first microbatch's gradients of products are the same written as added to 0") {
    check_written_products<cuda::bf16>(51, bf16_convolutions);
    check_written_products<cuda::fp32>(52, fp32_convolutions);
}

TEST_CASE("backend: a first microbatch's gradients of sums are the same written as added to 0") {
    backend_trial<cuda::bf16> t{53};
    check_written_sums(t, {0, 2});
    backend_trial<cuda::fp32> single{54};
    check_written_sums(single, {0, 2});
}
