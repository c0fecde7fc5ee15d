#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::adaptive_norm_shape;
using pulse::into;
using pulse::rotary_shape;

namespace {

/// The inputs and outputs of an adaptive norm; `affine` and `scaled` say which optional tensors exist.
struct norm_trial {
    adaptive_norm_shape shape;
    int batch;
    bool affine, scaled;
    std::int64_t all, modulations;
    tensor x, gamma, beta, scale, shift, y, statistics, dy, dx, dgamma, dbeta, dscale, dshift;

    norm_trial(source& draw, const adaptive_norm_shape& s, int samples, bool has_affine, bool has_scale) :
        shape{s}, batch{samples}, affine{has_affine}, scaled{has_scale},
        all{std::int64_t{samples} * s.tokens * s.features}, modulations{samples * s.stride} {
        x = draw.normal(all, 1.5, 0.3);
        gamma = draw.normal(s.features, 1.0, 0.5);
        beta = draw.normal(s.features);
        scale = draw.normal(modulations);
        shift = draw.normal(modulations);
        dy = draw.normal(all);
        y = tensor{all};
        statistics = tensor{2 * std::int64_t{samples} * s.tokens};
    }
    void clear(source& draw, into how) {
        dx = how == into::write ? tensor{all} : draw.normal(all);
        dgamma = draw.normal(shape.features);
        dbeta = draw.normal(shape.features);
        dscale = tensor{modulations, 7.0F};
        dshift = tensor{modulations, 7.0F};
    }
    template <class T, class B>
    void forward(B& on) {
        on.adaptive_norm(shape, batch, x.as<T>(), affine ? gamma.as<T>() : nullptr, affine ? beta.as<T>() : nullptr,
                         scaled ? scale.as<T>() : nullptr, shift.as<T>(), y.as<T>(), statistics.as<T>());
    }
    template <class T, class B>
    void backward(B& on, into how) {
        on.adaptive_norm_backward(shape, batch, x.as<T>(), affine ? gamma.as<T>() : nullptr,
                                  affine ? beta.as<T>() : nullptr, scaled ? scale.as<T>() : nullptr, statistics.as<T>(),
                                  dy.as<T>(), dx.as<T>(), affine ? dgamma.as<T>() : nullptr,
                                  affine ? dbeta.as<T>() : nullptr, scaled ? dscale.as<T>() : nullptr, dshift.as<T>(),
                                  how);
    }
};

} // namespace

TEST_CASE("the plain adaptive norm's gradients equal finite differences") {
    source draw{62};
    oracle plain;
    for (const bool affine : {true, false}) {
        for (const bool scaled : {true, false}) {
            norm_trial t{draw, {5, 3, 7, 1e-2}, 2, affine, scaled};
            t.forward<double>(plain);
            t.clear(draw, into::write);
            const tensor before_gamma = t.dgamma;
            const tensor before_beta = t.dbeta;
            t.backward<double>(plain, into::write);
            const auto forward = [&] {
                t.forward<double>(plain);
                return t.y;
            };
            for (std::size_t c = 0; c != t.dgamma.size(); ++c) {
                t.dgamma.twice[c] -= before_gamma.twice[c];
                t.dbeta.twice[c] -= before_beta.twice[c];
            }
            for (std::size_t at = 0; at != t.dshift.size(); ++at) {
                if (at % 7 >= 5) { t.dscale.twice[at] = t.dshift.twice[at] = 0.0; }
            }
            check_slopes(t.x, t.dx, t.dy, forward);
            check_slopes(t.shift, t.dshift, t.dy, forward);
            if (scaled) { check_slopes(t.scale, t.dscale, t.dy, forward); }
            if (affine) {
                check_slopes(t.gamma, t.dgamma, t.dy, forward);
                check_slopes(t.beta, t.dbeta, t.dy, forward);
            }
        }
    }
}

TEST_CASE("GELU's tanh form far from zero is the input or nothing, and keeps what is no number") {
    pulse::onednn::backend host;
    std::vector<float> x{20.0F, -20.0F, 1e13F, -1e13F, 1e25F, -1e25F, std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> y(x.size());
    std::vector<float> dx(x.size());
    const std::vector<float> ones(x.size(), 1.0F);
    host.gelu_tanh(7, x.data(), y.data());
    host.gelu_tanh_backward(7, x.data(), ones.data(), dx.data(), into::write);
    for (std::size_t i = 0; i != 6; ++i) {
        CHECK(std::abs(y[i] - std::max(x[i], 0.0F)) < 1e-12F);
        CHECK(std::abs(dx[i] - (x[i] > 0.0F ? 1.0F : 0.0F)) < 1e-6F);
    }
    CHECK(std::isnan(y[6]));
    CHECK(std::isnan(dx[6]));
}

TEST_CASE(
    "the plain rotary embedding turns pairs by angles of row and column; back it is the transpose and the inverse") {
    source draw{64};
    oracle plain;
    for (int i = 0; i != 30; ++i) {
        const rotary_shape s{draw.between(1, 9), draw.between(1, 9), draw.between(1, 4), 4 * draw.between(1, 22), 32.0};
        const int batch = draw.between(1, 3);
        const std::int64_t n = std::int64_t{batch} * s.tokens() * s.width();
        tensor x = draw.normal(n);
        tensor dy = draw.normal(n);
        tensor y{n};
        tensor dx{n};
        plain.rotary(s, batch, x.as<double>(), y.as<double>());
        plain.rotary_backward(s, batch, dy.as<double>(), dx.as<double>());
        double there = 0.0;
        double back = 0.0;
        for (std::size_t k = 0; k != y.size(); ++k) {
            there += y.twice[k] * dy.twice[k];
            back += x.twice[k] * dx.twice[k];
        }
        CHECK(std::abs(there - back) < 1e-9);
        plain.rotary_backward(s, batch, y.as<double>(), y.as<double>());
        for (std::size_t k = 0; k != y.size(); ++k) { REQUIRE(std::abs(y.twice[k] - x.twice[k]) < 1e-14); }
    }
    // By hand: the token in row 1, column 2 of a 2 x 4 grid, one head of 8.
    const rotary_shape s{2, 4, 1, 8, 4.0};
    tensor x{64, 0.0F};
    for (int pair = 0; pair != 4; ++pair) { x.twice[static_cast<std::size_t>(6 * 8 + 2 * pair)] = 1.0; }
    tensor y{64};
    plain.rotary(s, 1, x.as<double>(), y.as<double>());
    const double angles[] = {2.0, 2.0 * 0.01, 1.5, 1.5 * 0.01}; // column 2 of 0 to 4, row 1 of 1 to 2
    for (std::size_t pair = 0; pair != 4; ++pair) {
        CHECK(std::abs(y.twice[48 + 2 * pair] - std::cos(angles[pair])) < 1e-15);
        CHECK(std::abs(y.twice[49 + 2 * pair] - std::sin(angles[pair])) < 1e-15);
    }
}

TEST_CASE("the plain embedding looks rows up, and its gradient adds repeated rows") {
    oracle plain;
    const std::vector<double> indices{2.0, 0.0, 2.0};
    const std::vector<double> table{1.0, 2.0, 3.0, 4.0, 5.0, 6.0};
    std::vector<double> y(6);
    plain.embedding({3, 2}, 3, indices.data(), table.data(), y.data());
    CHECK(y == std::vector<double>{5.0, 6.0, 1.0, 2.0, 5.0, 6.0});
    std::vector<double> dtable(6, 0.5);
    const std::vector<double> dy{1.0, 2.0, 4.0, 8.0, 16.0, 32.0};
    plain.embedding_backward_weight({3, 2}, 3, indices.data(), dy.data(), dtable.data());
    CHECK(dtable == std::vector<double>{4.5, 8.5, 0.5, 0.5, 17.5, 34.5});
}

TEST_CASE(
    "the plain loops replace padding by learned vectors, whose gradients are those of the rows that they replaced") {
    oracle plain;
    const std::vector<double> mask{1.0, 0.0, 0.0, 0.0}; // two texts of two tokens
    const std::vector<double> padding{10.0, 20.0};
    std::vector<double> y{1.0, 2.0, 3.0, 4.0};
    plain.replace_padding(2, 2, 1, mask.data(), padding.data(), y.data());
    CHECK(y == std::vector<double>{1.0, 20.0, 10.0, 20.0});
    const std::vector<double> dy{1.0, 2.0, 4.0, 8.0};
    std::vector<double> dx(4);
    std::vector<double> dpadding(2, 0.5);
    plain.replace_padding_backward(2, 2, 1, mask.data(), dy.data(), dx.data(), dpadding.data());
    CHECK(dx == std::vector<double>{1.0, 0.0, 0.0, 0.0});
    CHECK(dpadding == std::vector<double>{4.5, 10.5});
    std::vector<double> wide{1.0, -2.0};
    plain.scale(2, 0.1, wide.data(), wide.data());
    CHECK(wide == std::vector<double>{0.1, -0.2});
}
