#include <doctest/doctest.h>

#include <support/operations/movement.hpp>
#include <support/operations/norms.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test;

TEST_CASE_TEMPLATE("cuda adaptive norm and its gradients equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{71};
    check_adaptive_norms(t);
    t.side.on.multiprocessors = 132;
    check_adaptive_norm(t, {1408, 3, 6 * 1408}, 2, true, true);
    check_adaptive_norm(t, {48, 300, 96}, 2, true, true);
    check_adaptive_norm(t, {3200, 2, 3200}, 1, false, true);
}

TEST_CASE_TEMPLATE("cuda rotary embedding turns pairs as the plain loops do, and back", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{72};
    check_drawn_rotary(t, 3);
}

TEST_CASE_TEMPLATE("cuda embeddings and their gradients equal the plain loops", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{73};
    check_drawn_embeddings(t, 3);
}

TEST_CASE_TEMPLATE("cuda padding is replaced, and its gradient goes to what replaced it", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{74};
    check_drawn_padding(t, 3);
}

TEST_CASE("cuda operations of conditioning refuse sizes that are none") {
    const device_queue queue;
    float* const none = nullptr;
    CHECK_THROWS_AS(cuda::rotary(queue.on(), {2, 2, 1, 6, 1.0}, 1, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::embedding(queue.on(), {0, 4}, 1, none, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::replace_padding(queue.on(), 1, 0, 1, none, none, none), pulse::input_error);
    CHECK_THROWS_AS(cuda::adaptive_norm(queue.on(), {0, 1, 1}, 1, none, none, none, none, none, none, none),
                    pulse::input_error);
}
