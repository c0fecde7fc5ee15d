#include <doctest/doctest.h>

#include <support/operations/functions.hpp>
#include <support/operations/norms.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test;

TEST_CASE_TEMPLATE("cuda statistics and rows of group norm equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{81};
    for (const bool silu : {false, true}) {
        t.side.on.multiprocessors = 3;
        check_group_norm_pieces(t, {32, 0, 8, 60, 1e-6, silu}, 5, 2);
        t.side.on.multiprocessors = 132;
        check_group_norm_pieces(t, {128, 0, 32, 700, 1e-6, silu}, 7, 1);
    }
    t.side.on.multiprocessors = 3;
    check_group_norm_pieces(t, {17, 0, 1, 30, 1e-6, true}, 3, 3);
    check_group_norm_pieces(t, {5, 0, 5, 1, 1e-6, true}, 1, 1);
    t.side.on.multiprocessors = 132;
    t.offset = 3;
    check_group_norm_pieces(t, {32, 0, 8, 60, 1e-6, true}, 5, 2);
}

TEST_CASE_TEMPLATE("cuda posteriors are drawn as the plain loops in double draw them", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{82};
    for (const int channels : {1, 4, 21}) { check_posterior(t, channels); }
}

TEST_CASE("cuda operations of pictures refuse shapes that are none") {
    const device_queue queue;
    const float* const nothing = nullptr;
    float* const nowhere = nullptr;
    CHECK_THROWS_WITH_AS(cuda::group_norm_statistics(queue.on(), {10, 0, 4, 6}, 1, nothing, nowhere),
                         "group_norm: 4 groups do not divide 10 channels", pulse::input_error);
    CHECK_THROWS_AS(
        cuda::group_norm_rows(queue.on(), {8, 8, 4, 6}, 1, 6, nothing, nothing, nothing, nothing, nowhere, 0),
        pulse::input_error);
    CHECK_THROWS_AS(cuda::posterior(queue.on(), 0, 4, 1.0F, nothing, nothing, nowhere), pulse::input_error);
}
