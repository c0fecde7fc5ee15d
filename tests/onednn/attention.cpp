#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::attention_shape;

namespace {

void check_all(pulse::onednn::backend& host, source& draw, const attention_shape& s, int batch, double sharpness) {
    CAPTURE(s.tokens);
    CAPTURE(s.heads);
    CAPTURE(s.head_size);
    CAPTURE(s.context_tokens);
    CAPTURE(batch);
    CAPTURE(sharpness);
    oracle plain;
    const std::int64_t n = std::int64_t{batch} * s.tokens * s.width();
    tensor q = draw.normal(n, sharpness);
    const std::int64_t others = std::int64_t{batch} * s.keys() * s.width();
    tensor k = draw.normal(others, sharpness);
    tensor v = draw.normal(others);
    tensor dout = draw.normal(n);
    tensor o{n};
    tensor lse{std::int64_t{batch} * s.heads * s.tokens};
    host.attention(s, batch, q.as<float>(), k.as<float>(), v.as<float>(), o.as<float>(), lse.as<float>());
    plain.attention(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(), lse.as<double>());
    // A score sums head_size products of sharpness^2 over sqrt(head_size); its error is the relative error of a
    // probability.
    const double score = 5.0 * sharpness * sharpness * std::sqrt(static_cast<double>(s.head_size));
    const double relative = 4.0 * (1.0 + score) * static_cast<double>(std::numeric_limits<float>::epsilon());
    CHECK(worst(lse, relative, 1.0) < 1.0);
    CHECK(worst(o, relative) < 1.0);
    tensor dq{n};
    tensor dk{others};
    tensor dv{others};
    host.attention_backward(s, batch, q.as<float>(), k.as<float>(), v.as<float>(), o.as<float>(), lse.as<float>(),
                            dout.as<float>(), dq.as<float>(), dk.as<float>(), dv.as<float>());
    plain.attention_backward(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(), lse.as<double>(),
                             dout.as<double>(), dq.as<double>(), dk.as<double>(), dv.as<double>());
    CHECK(worst(dq, 2.0 * relative, 0.3) < 1.0);
    CHECK(worst(dk, 2.0 * relative, 0.3) < 1.0);
    CHECK(worst(dv, 2.0 * relative, 0.3) < 1.0);
}

} // namespace

TEST_CASE("attention and its gradients equal the plain loops in double") {
    source draw{21};
    pulse::onednn::backend host;
    const std::vector<attention_shape> shapes{
        {49, 8, 8}, {196, 8, 8},  {64, 4, 16},   {49, 1, 64},  {196, 1, 24}, {17, 3, 5},
        {1, 1, 1},  {1, 2, 8},    {2, 1, 4},     {15, 2, 8},   {16, 2, 8},   {33, 2, 12},
        {65, 1, 8}, {130, 1, 32}, {256, 1, 256}, {131, 2, 40}, {1024, 1, 8}, {67, 1, 7},
    };
    for (const attention_shape& s : shapes) { check_all(host, draw, s, s.tokens > 500 ? 1 : draw.between(1, 3), 1.0); }
}

TEST_CASE("attention to another number of tokens and its gradients equal the plain loops in double") {
    source draw{23};
    pulse::onednn::backend host;
    const std::vector<attention_shape> shapes{
        {64, 4, 16, 77}, {49, 2, 8, 5},    {7, 2, 8, 130}, {196, 1, 24, 77}, {1, 1, 4, 9},     {9, 1, 4, 1},
        {33, 2, 12, 33}, {130, 2, 40, 77}, {5, 1, 64, 77}, {140, 1, 88, 3},  {3, 2, 160, 150}, {65, 3, 7, 64},
    };
    for (const attention_shape& s : shapes) { check_all(host, draw, s, draw.between(1, 3), 1.0); }
}

TEST_CASE("a context of as many tokens as there are queries is what self-attention reads") {
    source draw{24};
    pulse::onednn::backend host;
    for (const int size : {8, 40}) {
        const attention_shape s{50, 2, size};
        const attention_shape same{50, 2, size, 50};
        const std::int64_t n = std::int64_t{2} * s.tokens * s.width();
        tensor q = draw.normal(n);
        tensor k = draw.normal(n);
        tensor v = draw.normal(n);
        tensor o{n};
        tensor again{n};
        tensor lse{2 * 2 * 50};
        host.attention(s, 2, q.as<float>(), k.as<float>(), v.as<float>(), o.as<float>(), lse.as<float>());
        host.attention(same, 2, q.as<float>(), k.as<float>(), v.as<float>(), again.as<float>(), lse.as<float>());
        CHECK(o.single == again.single);
    }
}

TEST_CASE("attention with peaked rows neither overflows nor loses its digits") {
    source draw{22};
    pulse::onednn::backend host;
    for (const attention_shape& s :
         {attention_shape{49, 2, 8}, attention_shape{20, 1, 16}, attention_shape{70, 1, 40}}) {
        for (const double sharpness : {0.01, 4.0, 12.0}) { check_all(host, draw, s, 2, sharpness); }
    }
}
