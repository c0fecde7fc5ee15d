#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::attention_shape;
using pulse::into;
using pulse::layer_norm_shape;
using pulse::patch_shape;
using pulse::resample_shape;

#if !defined(__SANITIZE_THREAD__)
TEST_CASE("layer norm's bits do not depend on the number of threads") {
    source draw{57};
    const layer_norm_shape s{37};
    constexpr std::int64_t rows = 500;
    tensor x = draw.normal(rows * s.features);
    tensor dy = draw.normal(rows * s.features);
    tensor gamma = draw.normal(s.features);
    const auto results = [&](int threads) {
        pulse::onednn::backend host{threads};
        std::vector<std::vector<float>> all(5);
        for (std::size_t i = 0; i != 5; ++i) { all[i].resize(x.size(), 0.5F); }
        host.layer_norm(s, rows, x.as<float>(), gamma.as<float>(), gamma.as<float>(), all[0].data(), all[1].data());
        host.layer_norm_backward(s, rows, x.as<float>(), gamma.as<float>(), all[1].data(), dy.as<float>(),
                                 all[2].data(), all[3].data(), all[4].data(), into::add);
        return all;
    };
    const auto alone = results(1);
    CHECK(alone == results(2));
    CHECK(alone == results(3));
}
#endif

TEST_CASE("the plain layer norm's gradients equal finite differences") {
    source draw{52};
    oracle plain;
    const layer_norm_shape s{5, 1e-2};
    constexpr std::int64_t rows = 3;
    tensor x = draw.normal(rows * s.features);
    tensor gamma = draw.normal(s.features);
    tensor beta = draw.normal(s.features);
    const tensor weights = draw.normal(rows * s.features);
    tensor dy = weights;
    tensor statistics{2 * rows};
    const auto forward = [&] {
        tensor y{rows * s.features};
        plain.layer_norm(s, rows, x.as<double>(), gamma.as<double>(), beta.as<double>(), y.as<double>(),
                         statistics.as<double>());
        return y;
    };
    static_cast<void>(forward());
    tensor dx{rows * s.features};
    tensor dgamma{s.features, 0.0F};
    tensor dbeta{s.features, 0.0F};
    plain.layer_norm_backward(s, rows, x.as<double>(), gamma.as<double>(), statistics.as<double>(), dy.as<double>(),
                              dx.as<double>(), dgamma.as<double>(), dbeta.as<double>(), into::write);
    check_slopes(x, dx, weights, forward);
    check_slopes(gamma, dgamma, weights, forward);
    check_slopes(beta, dbeta, weights, forward);
}

TEST_CASE("the slopes of the plain GELU and of its tanh form equal finite differences") {
    source draw{53};
    oracle plain;
    tensor x = draw.normal(40, 2.0);
    tensor dy = draw.normal(40);
    tensor dx{40};
    plain.gelu_backward(40, x.as<double>(), dy.as<double>(), dx.as<double>(), into::write);
    check_slopes(x, dx, dy, [&] {
        tensor y{40};
        plain.gelu(40, x.as<double>(), y.as<double>());
        return y;
    });
    plain.gelu_tanh_backward(40, x.as<double>(), dy.as<double>(), dx.as<double>(), into::write);
    check_slopes(x, dx, dy, [&] {
        tensor y{40};
        plain.gelu_tanh(40, x.as<double>(), y.as<double>());
        return y;
    });
}

TEST_CASE("GELU far from zero is the input or nothing, and keeps what is no number") {
    pulse::onednn::backend host;
    const float huge = std::numeric_limits<float>::max();
    std::vector<float> x{0.0F, -0.0F, 20.0F, -20.0F, 1e19F, -1e19F, huge, std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> y(x.size());
    std::vector<float> dx(x.size());
    const std::vector<float> ones(x.size(), 1.0F);
    host.gelu(8, x.data(), y.data());
    host.gelu_backward(8, x.data(), ones.data(), dx.data(), into::write);
    for (std::size_t i = 0; i != 7; ++i) {
        CHECK(std::abs(y[i] - std::max(x[i], 0.0F)) < 1e-18F);
        CHECK(std::abs(dx[i] - (x[i] > 0.0F ? 1.0F : x[i] < 0.0F ? 0.0F : 0.5F)) < 1e-6F);
    }
    CHECK(std::isnan(y[7]));
    CHECK(std::isnan(dx[7]));
}

TEST_CASE("the plain GEGLU's gradient equals finite differences") {
    source draw{54};
    oracle plain;
    for (int i = 0; i != 3; ++i) {
        const int features = draw.between(1, 70);
        const std::int64_t rows = draw.between(1, 40);
        tensor x = draw.normal(2 * rows * features, 2.0);
        tensor dy = draw.normal(rows * features);
        tensor dx{2 * rows * features};
        plain.geglu_backward(rows, features, x.as<double>(), dy.as<double>(), dx.as<double>());
        check_slopes(x, dx, dy, [&] {
            tensor y{rows * features};
            plain.geglu(rows, features, x.as<double>(), y.as<double>());
            return y;
        });
    }
}

TEST_CASE("the plain attention's gradients equal finite differences, of a context too") {
    source draw{55};
    oracle plain;
    for (const attention_shape& s :
         {attention_shape{4, 2, 3}, attention_shape{3, 2, 2, 5}, attention_shape{4, 1, 3, 2}}) {
        constexpr int batch = 2;
        const std::int64_t n = std::int64_t{batch} * s.tokens * s.width();
        const std::int64_t others = std::int64_t{batch} * s.keys() * s.width();
        tensor q = draw.normal(n);
        tensor k = draw.normal(others);
        tensor v = draw.normal(others);
        tensor dout = draw.normal(n);
        tensor lse{std::int64_t{batch} * s.heads * s.tokens};
        const auto forward = [&] {
            tensor o{n};
            plain.attention(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(), lse.as<double>());
            return o;
        };
        tensor o = forward();
        tensor dq{n};
        tensor dk{others};
        tensor dv{others};
        plain.attention_backward(s, batch, q.as<double>(), k.as<double>(), v.as<double>(), o.as<double>(),
                                 lse.as<double>(), dout.as<double>(), dq.as<double>(), dk.as<double>(),
                                 dv.as<double>());
        check_slopes(q, dq, dout, forward);
        check_slopes(k, dk, dout, forward);
        check_slopes(v, dv, dout, forward);
    }
}

TEST_CASE("the plain loops resample vectors of a grid by Keys' weights, which add up to 1") {
    source draw{59};
    oracle plain;
    for (int i = 0; i != 40; ++i) {
        const resample_shape s{draw.between(1, 6), draw.between(1, 6),   draw.between(1, 9),
                               draw.between(1, 9), draw.between(1, 300), draw.between(0, 2)};
        std::vector<double> x(static_cast<std::size_t>(s.from_tokens() * s.features), 2.0);
        std::vector<double> y(static_cast<std::size_t>(s.tokens() * s.features));
        plain.add_resampled(s, 1, x.data(), y.data());
        for (const double each : y) { REQUIRE(each == doctest::Approx(2.0)); }
    }
    const std::vector<double> two{1, 3};
    std::vector<double> four(4, 0.0);
    plain.add_resampled({1, 2, 1, 4, 1, 0}, 1, two.data(), four.data());
    CHECK(four == std::vector<double>{0.7890625, 1.453125, 2.546875, 3.2109375});
}

TEST_CASE("in the plain loops images become tokens of patches, behind leading zeros; rows keep their strides") {
    source draw{56};
    oracle plain;
    for (int i = 0; i != 40; ++i) {
        const patch_shape s{draw.between(1, 5), draw.between(1, 5), draw.between(1, 4), draw.between(1, 20),
                            draw.between(0, 2)};
        tensor image = draw.normal(s.image_elements());
        tensor tokens{std::int64_t{s.tokens()} * s.features()};
        plain.image_to_patches(s, 1, image.as<double>(), tokens.as<double>());
        // A pixel by hand: the last channel of the last row's second to last pixel.
        const int width = s.columns * s.patch;
        const int column = std::max(width - 2, 0);
        const int token = s.leading + (s.rows - 1) * s.columns + column / s.patch;
        const int in_patch = (s.patch - 1) * s.patch + column % s.patch;
        CHECK(tokens.twice[static_cast<std::size_t>((token * s.patch * s.patch + in_patch + 1) * s.channels - 1)] ==
              image.twice[static_cast<std::size_t>(((s.rows * s.patch - 1) * width + column + 1) * s.channels - 1)]);
        for (int t = 0; t != s.leading * s.features(); ++t) { CHECK(tokens.twice[static_cast<std::size_t>(t)] == 0.0); }
        tensor back{s.image_elements()};
        plain.patches_to_image(s, 1, tokens.as<double>(), back.as<double>());
        CHECK(back.twice == image.twice);
    }
    const std::vector<double> rows{1, 2, 3, 4, 5, 6};
    std::vector<double> there(4, 0.0);
    plain.copy_rows(2, 1, rows.data(), 3, there.data(), 2);
    CHECK(there == std::vector<double>{1, 0, 4, 0});
}
