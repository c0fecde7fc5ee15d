#include <doctest/doctest.h>

#include <cstdint>
#include <utility>

#include <support/operations/functions.hpp>
#include <support/operations/movement.hpp>
#include <support/operations/norms.hpp>

#include <device_side.hpp>

namespace cuda = pulse::cuda;
using pulse::masked_attention_shape;
using namespace pulse::test;

TEST_CASE_TEMPLATE("cuda masked attention equals the plain loops in double", T, __nv_bfloat16, __half, float) {
    kernel_trial<T> t{81};
    for (const auto& [s, batch] : {std::pair{masked_attention_shape{77, 1, 64, 0.125}, 1},
                                   {masked_attention_shape{37, 2, 12, 0.3}, 2},
                                   {masked_attention_shape{18, 1, 80, 0.1}, 1},
                                   {masked_attention_shape{1, 2, 3, 1.0}, 2}}) {
        check_masked_attention(t, s, batch, {0, 1, 6, 7});
    }
}

TEST_CASE_TEMPLATE("cuda RMSNorm, quick GELU and gates equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    kernel_trial<T> t{82};
    for (const auto& [features, rows] : {std::pair{2048, 2}, {37, 5}, {64, 7}, {1, 1}}) {
        check_rms_norm(t, features, rows);
        check_gates(t, std::int64_t{features} * rows);
    }
}

TEST_CASE("cuda operations of text encoders refuse sizes that are none") {
    const device_queue queue;
    float* const none = nullptr;
    CHECK_THROWS_AS(cuda::masked_attention(queue.on(), {4, 1, 257}, 1, none, none, none, none, none, none),
                    pulse::input_error);
    CHECK_THROWS_AS(cuda::rms_norm(queue.on(), {0, 1e-6}, 1, none, none, none), pulse::input_error);
}
