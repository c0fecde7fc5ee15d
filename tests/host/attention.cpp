#include <vector>

#include <doctest/doctest.h>

#include <host/parity.hpp>
#include <pulse/host/backend.hpp>
#include <pulse/host/reference.hpp>

using namespace host_tests;
using pulse::attention_shape;
using pulse::host::onednn_backend;
using reference = pulse::host::reference_backend<double>;

namespace {

void check_all(onednn_backend& host, source& draw, const attention_shape& s, int batch, double sharpness) {
    CAPTURE(s.tokens);
    CAPTURE(s.heads);
    CAPTURE(s.head_size);
    CAPTURE(batch);
    CAPTURE(sharpness);
    reference plain;
    const std::int64_t n = std::int64_t{batch} * s.tokens * s.width();
    tensor q = draw.normal(n, sharpness);
    tensor k = draw.normal(n, sharpness);
    tensor v = draw.normal(n);
    tensor dout = draw.normal(n);
    tensor o{n};
    tensor lse{std::int64_t{batch} * s.heads * s.tokens};
    host.attention(s, batch, q.as<float>(), k.as<float>(), v.as<float>(), o.as<float>(), lse.as<float>());
    plain.attention(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(), lse.as<double>());
    // A score is a sum of head_size products of sharpness^2 over sqrt(head_size); its error is that of a probability.
    const double score = 5.0 * sharpness * sharpness * std::sqrt(static_cast<double>(s.head_size));
    const double relative = 4.0 * (1.0 + score) * static_cast<double>(std::numeric_limits<float>::epsilon());
    CHECK(worst(lse, relative, 1.0) < 1.0);
    CHECK(worst(o, relative) < 1.0);
    tensor dq{n};
    tensor dk{n};
    tensor dv{n};
    host.attention_backward(s, batch, q.as<float>(), k.as<float>(), v.as<float>(), o.as<float>(), lse.as<float>(),
                            dout.as<float>(), dq.as<float>(), dk.as<float>(), dv.as<float>());
    plain.attention_backward(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(),
                             lse.as<double>(), dout.as<double>(), dq.as<double>(), dk.as<double>(), dv.as<double>());
    CHECK(worst(dq, 2.0 * relative, 0.3) < 1.0);
    CHECK(worst(dk, 2.0 * relative, 0.3) < 1.0);
    CHECK(worst(dv, 2.0 * relative, 0.3) < 1.0);
}

} // namespace

TEST_CASE("attention and its gradients equal the plain loops in double") {
    source draw{21};
    onednn_backend host;
    const std::vector<attention_shape> shapes{
        {49, 8, 8},   {196, 8, 8}, {64, 4, 16}, {49, 1, 64},  {196, 1, 24}, {17, 3, 5},  {1, 1, 1},   {1, 2, 8},
        {2, 1, 4},    {15, 2, 8},  {16, 2, 8},  {33, 2, 12},  {65, 1, 8},   {130, 1, 32}, {256, 1, 256}, {131, 2, 40},
        {1024, 1, 8}, {67, 1, 7},
    };
    for (const attention_shape& s : shapes) {
        check_all(host, draw, s, s.tokens > 500 ? 1 : draw.between(1, 3), 1.0);
    }
}

TEST_CASE("attention with peaked rows neither overflows nor loses its digits") {
    source draw{22};
    onednn_backend host;
    for (const attention_shape& s : {attention_shape{49, 2, 8}, attention_shape{20, 1, 16}, attention_shape{70, 1, 40}}) {
        for (const double sharpness : {0.01, 4.0, 12.0}) { check_all(host, draw, s, 2, sharpness); }
    }
}
