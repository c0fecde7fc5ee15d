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

namespace {

constexpr double token_epsilon = static_cast<double>(std::numeric_limits<float>::epsilon());

void check_layer_norm(pulse::onednn::backend& host, source& draw, const layer_norm_shape& s, std::int64_t rows,
                      double shift) {
    CAPTURE(s.features);
    CAPTURE(rows);
    CAPTURE(shift);
    oracle plain;
    const std::int64_t n = rows * s.features;
    tensor x = draw.normal(n, 1.5, shift);
    tensor gamma = draw.normal(s.features);
    tensor beta = draw.normal(s.features);
    tensor dy = draw.normal(n);
    // What rounding the mean and the differences from it costs, in standard deviations.
    const double relative = 12.0 * (1.0 + std::abs(shift)) * token_epsilon;
    tensor y{n};
    tensor statistics{2 * rows};
    host.layer_norm(s, rows, x.as<float>(), gamma.as<float>(), beta.as<float>(), y.as<float>(), statistics.as<float>());
    plain.layer_norm(s, rows, x.as<double>(), gamma.as<double>(), beta.as<double>(), y.as<double>(),
                     statistics.as<double>());
    CHECK(worst(statistics, relative) < 1.0);
    CHECK(worst(y, relative) < 1.0);
    for (const into how : {into::write, into::add}) {
        tensor dx = how == into::write ? tensor{n} : draw.normal(n);
        tensor dgamma = draw.normal(s.features);
        tensor dbeta = draw.normal(s.features);
        host.layer_norm_backward(s, rows, x.as<float>(), gamma.as<float>(), statistics.as<float>(), dy.as<float>(),
                                 dx.as<float>(), dgamma.as<float>(), dbeta.as<float>(), how);
        plain.layer_norm_backward(s, rows, x.as<double>(), gamma.as<double>(), statistics.as<double>(), dy.as<double>(),
                                  dx.as<double>(), dgamma.as<double>(), dbeta.as<double>(), how);
        CHECK(worst(dx, 4.0 * relative) < 1.0);
        const std::vector<double> terms(dgamma.size(), 3.0 * std::sqrt(static_cast<double>(rows)));
        CHECK(worst(dgamma, terms, relative) < 1.0);
        CHECK(worst(dbeta, terms, relative) < 1.0);
    }
}

} // namespace

TEST_CASE("layer norm and its gradients equal the plain loops in double") {
    source draw{51};
    pulse::onednn::backend host;
    for (const int features : {5, 7, 16, 33, 48, 64, 127, 512, 1152}) {
        for (const std::int64_t rows : {1, 3, 64, 65, 200}) {
            if (features < 1000 || rows < 100) { check_layer_norm(host, draw, {features}, rows, 0.3); }
        }
    }
    check_layer_norm(host, draw, {40, 1e-2}, 70, -0.5);
    for (const double shift : {-30.0, 1000.0}) { check_layer_norm(host, draw, {96, 1e-6}, 33, shift); }
}

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

TEST_CASE("GELU equals the plain one in double, in place too, and its slope finite differences") {
    source draw{53};
    pulse::onednn::backend host;
    oracle plain;
    for (const std::int64_t n : {0, 1, 3, 8, 15, 16, 31, 1000, 40000}) {
        CAPTURE(n);
        tensor x = draw.normal(n, 3.0);
        const tensor dy = draw.normal(n);
        // Phi to 2 units of 1, times x, and the rounding of x itself.
        const auto bound = [&] {
            std::vector<double> of;
            for (const double v : x.twice) { of.push_back(1.0 + std::abs(v)); }
            return of;
        }();
        tensor y{n};
        host.gelu(n, x.as<float>(), y.as<float>());
        plain.gelu(n, x.as<double>(), y.as<double>());
        CHECK(worst(y, bound, 2.0 * token_epsilon) < 1.0);
        tensor in_place = x;
        host.gelu(n, in_place.as<float>(), in_place.as<float>());
        CHECK(in_place.single == y.single);
        for (const into how : {into::write, into::add}) {
            tensor dx = how == into::write ? tensor{n} : draw.normal(n);
            tensor g = dy;
            host.gelu_backward(n, x.as<float>(), g.as<float>(), dx.as<float>(), how);
            plain.gelu_backward(n, x.as<double>(), g.as<double>(), dx.as<double>(), how);
            CHECK(worst(dx, std::vector<double>(dx.size(), 5.0), 2.0 * token_epsilon) < 1.0);
            if (how == into::write) {
                host.gelu_backward(n, x.as<float>(), g.as<float>(), g.as<float>(), how);
                CHECK(g.single == dx.single);
            }
        }
    }
    tensor x = draw.normal(40, 2.0);
    tensor dy = draw.normal(40);
    const auto forward = [&] {
        tensor y{40};
        plain.gelu(40, x.as<double>(), y.as<double>());
        return y;
    };
    tensor dx{40};
    plain.gelu_backward(40, x.as<double>(), dy.as<double>(), dx.as<double>(), into::write);
    check_slopes(x, dx, dy, forward);
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

TEST_CASE("GEGLU and its gradient equal the plain loops in double, and those finite differences") {
    source draw{54};
    pulse::onednn::backend host;
    oracle plain;
    for (int i = 0; i != 30; ++i) {
        const int features = draw.between(1, 70);
        const std::int64_t rows = draw.between(1, 40);
        CAPTURE(features);
        CAPTURE(rows);
        tensor x = draw.normal(2 * rows * features, 2.0);
        tensor dy = draw.normal(rows * features);
        tensor y{rows * features};
        host.geglu(rows, features, x.as<float>(), y.as<float>());
        plain.geglu(rows, features, x.as<double>(), y.as<double>());
        CHECK(worst(y, 4.0 * token_epsilon, 20.0) < 1.0);
        tensor dx{2 * rows * features};
        host.geglu_backward(rows, features, x.as<float>(), dy.as<float>(), dx.as<float>());
        plain.geglu_backward(rows, features, x.as<double>(), dy.as<double>(), dx.as<double>());
        CHECK(worst(dx, 4.0 * token_epsilon, 20.0) < 1.0);
        if (i < 3) {
            check_slopes(x, dx, dy, [&] {
                tensor again{rows * features};
                plain.geglu(rows, features, x.as<double>(), again.as<double>());
                return again;
            });
        }
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

TEST_CASE("vectors of a grid are resampled for another, and gradients of these come back") {
    source draw{59};
    pulse::onednn::backend host{2};
    oracle plain;
    for (int i = 0; i != 40; ++i) {
        // More features than one thread adds at a time, at times.
        const resample_shape s{draw.between(1, 6), draw.between(1, 6),   draw.between(1, 9),
                               draw.between(1, 9), draw.between(1, 300), draw.between(0, 2)};
        const int batch = draw.between(1, 3);
        CAPTURE(i);
        tensor x = draw.normal(std::int64_t{s.from_tokens()} * s.features);
        tensor y = draw.normal(std::int64_t{batch} * s.tokens() * s.features);
        host.add_resampled(s, batch, x.as<float>(), y.as<float>());
        plain.add_resampled(s, batch, x.as<double>(), y.as<double>());
        CHECK(worst(y, 32 * token_epsilon) < 1.0);
        tensor dx = draw.normal(std::int64_t{s.from_tokens()} * s.features);
        host.resampled_sums(s, batch, y.as<float>(), dx.as<float>());
        plain.resampled_sums(s, batch, y.as<double>(), dx.as<double>());
        CHECK(worst(dx, 256 * token_epsilon) < 1.0);
        // Vectors that are all the same stay so: the weights of a token add up to 1.
        std::ranges::fill(x.twice, 2.0);
        std::ranges::fill(y.twice, 0.0);
        plain.add_resampled(s, batch, x.as<double>(), y.as<double>());
        for (const double each : y.twice) { REQUIRE(each == doctest::Approx(2.0)); }
    }
    // Keys' weights by hand.
    const std::vector<double> two{1, 3};
    std::vector<double> four(4, 0.0);
    plain.add_resampled({1, 2, 1, 4, 1, 0}, 1, two.data(), four.data());
    CHECK(four == std::vector<double>{0.7890625, 1.453125, 2.546875, 3.2109375});
    const float none{};
    float to{};
    CHECK_THROWS_AS(host.add_resampled({1, 1, 0, 1, 1, 0}, 1, &none, &to), pulse::input_error);
    CHECK_THROWS_AS(host.resampled_sums({1, 1, 1, 1, 1, 0}, 0, &none, &to), pulse::input_error);
}

TEST_CASE("images become tokens of patches and come back; rows are copied with their strides") {
    source draw{56};
    pulse::onednn::backend host{2};
    oracle plain;
    for (int i = 0; i != 40; ++i) {
        const patch_shape s{draw.between(1, 5), draw.between(1, 5), draw.between(1, 4), draw.between(1, 20),
                            draw.between(0, 2)};
        const int batch = draw.between(1, 3);
        tensor image = draw.normal(batch * s.image_elements());
        tensor tokens{std::int64_t{batch} * s.tokens() * s.features()};
        host.image_to_patches(s, batch, image.as<float>(), tokens.as<float>());
        plain.image_to_patches(s, batch, image.as<double>(), tokens.as<double>());
        CHECK(worst(tokens, 1e-12) < 1.0);
        // A pixel by hand: the last channel of the last row's second to last pixel.
        const int width = s.columns * s.patch;
        const int column = std::max(width - 2, 0);
        const int token = s.leading + (s.rows - 1) * s.columns + column / s.patch;
        const int in_patch = (s.patch - 1) * s.patch + column % s.patch;
        CHECK(tokens.single[static_cast<std::size_t>((token * s.patch * s.patch + in_patch + 1) * s.channels - 1)] ==
              image.single[static_cast<std::size_t>(((s.rows * s.patch - 1) * width + column + 1) * s.channels - 1)]);
        for (int t = 0; t != s.leading * s.features(); ++t) {
            CHECK(tokens.single[static_cast<std::size_t>(t)] == 0.0F);
        }
        tensor back{batch * s.image_elements()};
        host.patches_to_image(s, batch, tokens.as<float>(), back.as<float>());
        plain.patches_to_image(s, batch, tokens.as<double>(), back.as<double>());
        CHECK(back.single == image.single);
        CHECK(back.twice == image.twice);

        const std::int64_t n = draw.between(1, 9);
        tensor x = draw.normal(5 * (n + 3));
        tensor y = draw.normal(5 * (n + 1));
        host.copy_rows(5, n, x.as<float>(), n + 3, y.as<float>(), n + 1);
        plain.copy_rows(5, n, x.as<double>(), n + 3, y.as<double>(), n + 1);
        CHECK(worst(y, 1e-12) < 1.0);
        CHECK(y.single[static_cast<std::size_t>(4 * (n + 1))] == x.single[static_cast<std::size_t>(4 * (n + 3))]);
    }
}
