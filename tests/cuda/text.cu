#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pulse/cuda/kernels/masked_attention.cuh>
#include <pulse/cuda/kernels/pointwise.cuh>
#include <pulse/cuda/kernels/rms_norm.cuh>
#include <pulse/reference/backend.hpp>

#include <compare.hpp>

namespace cuda = pulse::cuda;
using pulse::layer_norm_shape;
using pulse::masked_attention_shape;
using namespace pulse::test;
using doubles = std::vector<double>;
using reference = pulse::reference::backend<double>;

TEST_CASE_TEMPLATE("cuda masked attention equals the plain loops in double", T, __nv_bfloat16, __half, float) {
    source draw{81};
    reference plain;
    for (const auto& [s, batch] : {std::pair{masked_attention_shape{77, 1, 64, 0.125}, 1},
                                   {masked_attention_shape{37, 2, 12, 0.3}, 2},
                                   {masked_attention_shape{18, 1, 80, 0.1}, 1},
                                   {masked_attention_shape{1, 2, 3, 1.0}, 2}}) {
        const std::int64_t n = std::int64_t{batch} * s.tokens * s.width();
        const doubles q = draw.normal<T>(n);
        const doubles k = draw.normal<T>(n);
        const doubles v = draw.normal<T>(n);
        const doubles bias = draw.normal<T>(std::int64_t{s.distances()} * s.heads);
        doubles mask;
        for (int i = 0; i != batch * s.tokens; ++i) { mask.push_back(i % s.tokens == 0 ? 1 : draw.between(0, 1)); }
        const tensor<T> device_q(q);
        const tensor<T> device_k(k);
        const tensor<T> device_v(v);
        const tensor<T> device_bias(bias);
        const tensor<float> device_mask(mask);
        for (const int parts : {0, 1, 6, 7}) {
            CAPTURE(s.tokens);
            CAPTURE(parts);
            masked_attention_shape shape = s;
            shape.causal = (parts & 1) != 0;
            const auto some = [&](int bit, auto* data) { return (parts & bit) != 0 ? data : nullptr; };
            doubles o(q.size());
            plain.masked_attention(shape, batch, q.data(), k.data(), v.data(), some(2, mask.data()),
                                   some(4, bias.data()), o.data());
            const device_queue queue;
            const tensor<T> device_o(n);
            cuda::masked_attention<T>(queue.on(), shape, batch, device_q.data(), device_k.data(), device_v.data(),
                                      some(2, device_mask.data()), some(4, device_bias.data()), device_o.data());
            CHECK(worst<T>(device_o.download(queue), o, 40.0 * float_epsilon, 4.0) < 1.0);
            CHECK(device_o.intact(queue));
        }
    }
}

TEST_CASE_TEMPLATE("cuda RMSNorm, quick GELU and gates equal the plain loops in double", T, __nv_bfloat16, __half,
                   float) {
    source draw{82};
    reference plain;
    for (const auto& [features, rows] : {std::pair{2048, 2}, {37, 5}, {64, 7}, {1, 1}}) {
        const device_queue queue;
        const layer_norm_shape s{features, 1e-6};
        CAPTURE(s.features);
        const std::int64_t n = std::int64_t{rows} * features;
        const doubles x = draw.normal<T>(n, 1.5, 0.3);
        const doubles gamma = draw.normal<T>(features);
        const doubles factor = draw.normal<T>(n);
        doubles y(x.size());
        const tensor<T> device_x(x);
        const tensor<T> device_gamma(gamma);
        const tensor<T> device_y(n);
        plain.rms_norm(s, rows, x.data(), gamma.data(), y.data());
        cuda::rms_norm<T>(queue.on(), s, rows, device_x.data(), device_gamma.data(), device_y.data());
        CHECK(worst<T>(device_y.download(queue), y, 20.0 * float_epsilon) < 1.0);
        plain.quick_gelu(n, x.data(), y.data());
        cuda::quick_gelu<T>(queue.on(), n, device_x.data(), device_y.data());
        CHECK(worst<T>(device_y.download(queue), y, 20.0 * float_epsilon) < 1.0);
        doubles product = factor;
        const tensor<T> device_product(factor);
        plain.gate(n, x.data(), product.data());
        cuda::gate<T>(queue.on(), n, device_x.data(), device_product.data());
        CHECK(worst<T>(device_product.download(queue), product, float_epsilon) < 1.0);
        CHECK(device_y.intact(queue));
        CHECK(device_product.intact(queue));
    }
}

TEST_CASE("cuda operations of text encoders refuse sizes that are none") {
    const device_queue queue;
    float* const none = nullptr;
    CHECK_THROWS_AS(cuda::masked_attention(queue.on(), {4, 1, 257}, 1, none, none, none, none, none, none),
                    pulse::input_error);
    CHECK_THROWS_AS(cuda::rms_norm(queue.on(), {0, 1e-6}, 1, none, none, none), pulse::input_error);
}
