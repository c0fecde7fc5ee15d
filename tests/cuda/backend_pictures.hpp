#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/cuda/products.cuh>
#include <pulse/cuda/wide_attention.cuh>
#include <pulse/encode/autoencoder.hpp>
#include <pulse/encode/chain.hpp>

#include <backend_trial.hpp>

namespace cuda = pulse::cuda;
using namespace pulse::test;

namespace backend_tests {

/// Heads wider than any kernel takes; attend(q, k, v, o, lse) enqueues its work.
template <class P, class Attend>
void check_wide_attention(const pulse::attention_shape& s, int batch, const device_queue& queue, Attend attend) {
    using T = typename P::scalar;
    CAPTURE(P::name);
    CAPTURE(s.head_size);
    source draw{91};
    const std::int64_t queries = std::int64_t{batch} * s.tokens * s.width();
    const std::int64_t keys = std::int64_t{batch} * s.keys() * s.width();
    const doubles q = draw.template normal<T>(queries);
    const doubles k = draw.template normal<T>(keys);
    const doubles v = draw.template normal<T>(keys);
    doubles o(q.size());
    doubles lse(static_cast<std::size_t>(batch) * s.heads * s.tokens);
    pulse::reference::backend<double>{}.attention(s, batch, q.data(), k.data(), v.data(), o.data(), lse.data());

    const tensor<T> device_q(q);
    const tensor<T> device_k(k);
    const tensor<T> device_v(v);
    const tensor<T> device_o(queries);
    const tensor<float> device_lse(static_cast<std::int64_t>(lse.size()));
    attend(device_q.data(), device_k.data(), device_v.data(), device_o.data(), device_lse.data());
    // scores sum head_size products; weights are rounded before they multiply v
    const double scores = sum_error<P>(s.head_size) * 4.0;
    CHECK(worst<float>(device_lse.download(queue), lse, scores) < 1.0);
    CHECK(worst<T>(device_o.download(queue), o, 2.0 * rounding_error<T> + 2.0 * scores, 4.0) < 1.0);
    CHECK(device_o.intact(queue));
}

/// Computes attention in blocks of at most `most_scores` scores.
template <class P>
void check_blocks_of_queries(const pulse::attention_shape& s, int batch, std::int64_t most_scores) {
    const device_queue queue;
    cuda::scratch_arena scratch{queue.stream()};
    cuda::products<typename P::scalar> products{{}, P::tensor_float};
    cuda::wide_attention<typename P::scalar> wide{queue.stream(), most_scores};
    check_wide_attention<P>(s, batch, queue,
                            [&](auto... a) { wide.forward(queue.on(), scratch, products, s, batch, a...); });
}

constexpr pulse::encode::autoencoder_config device_config() {
    pulse::encode::autoencoder_config c{};
    c.name = "device";
    c.sample_size = 8;
    c.block_out_channels = {8, 16};
    c.layers_per_block = 1;
    c.norm_num_groups = 4;
    c.strip_rows = 3;
    return c;
}

/// Error of the model on the device against the host in double, with the same values, relative to the greatest output.
template <class P, class M>
double network_error() {
    using T = typename P::scalar;
    using on_device = cuda::backend<P>;
    using on_host = pulse::reference::backend<double>;
    constexpr int samples = 2;
    constexpr std::int64_t in = samples * M::template layer_at<0>::input::elements;
    constexpr std::int64_t out = samples * M::template layer_at<M::layer_count - 1>::output::elements;
    source draw{92};
    const doubles x = draw.template normal<T>(in);

    on_host plain;
    pulse::encode::chain<M, on_host> wanted{plain};
    const doubles weights = draw.template normal<T>(static_cast<std::int64_t>(wanted.parameters().size()), 0.05);
    std::copy(weights.begin(), weights.end(), wanted.parameters().begin());
    doubles y(static_cast<std::size_t>(out));
    wanted.run(samples, x.data(), y.data());

    on_device device;
    pulse::encode::chain<M, on_device> model{device};
    auto next = weights.begin();
    model.load([&](const pulse::parameter&, std::span<float> to) {
        for (float& value : to) { value = static_cast<float>(*next++); }
    });
    const tensor<T> device_x(x);
    const tensor<T> device_y(out);
    model.run(samples, device_x.data(), device_y.data());
    device.synchronize();
    const device_queue waiting;
    const doubles got = device_y.download(waiting);
    CHECK(device_y.intact(waiting));
    double greatest = 0.0;
    double off = 0.0;
    for (std::size_t i = 0; i != y.size(); ++i) {
        const double difference = std::abs(got[i] - y[i]);
        off = difference <= off ? off : difference;
        greatest = std::max(greatest, std::abs(y[i]));
    }
    return off / greatest;
}

} // namespace backend_tests

TEST_CASE("attention of heads too wide for any kernel uses matrix products, one block of queries at a time") {
    using namespace backend_tests;
    check_blocks_of_queries<cuda::bf16>({20, 1, 512}, 2, 400);
    check_blocks_of_queries<cuda::fp32>({20, 1, 512}, 1, 7 * 20);
    check_blocks_of_queries<cuda::fp32>({9, 2, 260, 270}, 2, 1);

    const device_queue queue;
    cuda::backend<cuda::bf16> on{queue.stream()};
    const pulse::attention_shape s{20, 1, 512};
    check_wide_attention<cuda::bf16>(s, 2, queue, [&](auto... a) { on.attention(s, 2, a...); });
    CHECK(on.attention_report() == "attention forward of 20 tokens to 20, 1 heads of 512: products by cuBLASLt\n");
    CHECK(on.scratch_bytes() >= 6 * 20 * 20);
}

TEST_CASE("the autoencoder runs on the device as on the host") {
    using namespace backend_tests;
    using encoder = pulse::encode::autoencoder_encoder<device_config()>;
    using decoder = pulse::encode::autoencoder_decoder<device_config()>;
    CHECK(network_error<cuda::fp32, encoder>() < 1e-5);
    CHECK(network_error<cuda::fp32, decoder>() < 1e-5);
    CHECK(network_error<cuda::bf16, encoder>() < 0.05);
}
