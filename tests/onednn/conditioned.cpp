#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/core/error.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::adaptive_norm_shape;
using pulse::embedding_shape;
using pulse::into;
using pulse::rotary_shape;

namespace {

constexpr double float_unit = static_cast<double>(std::numeric_limits<float>::epsilon());

/// What an adaptive norm reads and writes; `affine` and `scaled` say which of its tensors there are.
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

TEST_CASE("adaptive norm and its gradients equal the plain loops in double, with and without affine and scale") {
    source draw{61};
    pulse::onednn::backend host{2};
    oracle plain;
    for (int i = 0; i != 40; ++i) {
        const int features = draw.between(1, 80);
        const adaptive_norm_shape s{features, draw.between(1, 90), features + draw.between(0, 1) * features, 1e-6};
        norm_trial t{draw, s, draw.between(1, 3), i % 2 == 0, i / 2 % 2 == 0};
        CAPTURE(features);
        CAPTURE(s.tokens);
        t.forward<float>(host);
        t.forward<double>(plain);
        // One feature has no deviation: epsilon decides, and the difference from the mean is 0 on both sides.
        const double relative = 24.0 * float_unit;
        CHECK(worst(t.statistics, relative) < 1.0);
        CHECK(worst(t.y, relative, 4.0) < 1.0);
        for (const into how : {into::write, into::add}) {
            t.clear(draw, how);
            const tensor dscale = t.dscale;
            t.backward<float>(host, how);
            t.backward<double>(plain, how);
            const double deviation = features == 1 ? 1e3 : 1.0;
            CHECK(worst(t.dx, 6.0 * relative, 8.0 * deviation) < 1.0);
            const std::vector<double> terms(t.dgamma.size(), 8.0 * std::sqrt(static_cast<double>(t.batch * s.tokens)));
            CHECK(worst(t.dgamma, terms, relative) < 1.0);
            CHECK(worst(t.dbeta, terms, relative) < 1.0);
            const std::vector<double> of_sample(t.dshift.size(), 8.0 * std::sqrt(static_cast<double>(s.tokens)));
            CHECK(worst(t.dscale, of_sample, relative) < 1.0);
            CHECK(worst(t.dshift, of_sample, relative) < 1.0);
            // What lies between the modulations is not touched.
            if (s.stride != features) { CHECK(t.dshift.single[static_cast<std::size_t>(features)] == 7.0F); }
            if (!t.scaled) { CHECK(t.dscale.single == dscale.single); }
        }
    }
}

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

TEST_CASE("GELU's tanh form equals the plain one in double, in place too, and its slope finite differences") {
    source draw{63};
    pulse::onednn::backend host;
    oracle plain;
    for (const std::int64_t n : {0, 1, 7, 16, 31, 1000, 40000}) {
        CAPTURE(n);
        tensor x = draw.normal(n, 3.0);
        const tensor dy = draw.normal(n);
        std::vector<double> bound;
        for (const double v : x.twice) { bound.push_back(1.0 + std::abs(v)); }
        tensor y{n};
        host.gelu_tanh(n, x.as<float>(), y.as<float>());
        plain.gelu_tanh(n, x.as<double>(), y.as<double>());
        CHECK(worst(y, bound, 4.0 * float_unit) < 1.0);
        tensor in_place = x;
        host.gelu_tanh(n, in_place.as<float>(), in_place.as<float>());
        CHECK(in_place.single == y.single);
        for (const into how : {into::write, into::add}) {
            tensor dx = how == into::write ? tensor{n} : draw.normal(n);
            tensor g = dy;
            host.gelu_tanh_backward(n, x.as<float>(), g.as<float>(), dx.as<float>(), how);
            plain.gelu_tanh_backward(n, x.as<double>(), g.as<double>(), dx.as<double>(), how);
            CHECK(worst(dx, std::vector<double>(dx.size(), 5.0), 4.0 * float_unit) < 1.0);
            if (how == into::write) {
                host.gelu_tanh_backward(n, x.as<float>(), g.as<float>(), g.as<float>(), how);
                CHECK(g.single == dx.single);
            }
        }
    }
    tensor x = draw.normal(40, 2.0);
    tensor dy = draw.normal(40);
    tensor dx{40};
    plain.gelu_tanh_backward(40, x.as<double>(), dy.as<double>(), dx.as<double>(), into::write);
    check_slopes(x, dx, dy, [&] {
        tensor y{40};
        plain.gelu_tanh(40, x.as<double>(), y.as<double>());
        return y;
    });
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

TEST_CASE("rotary embedding equals the plain one in double, in place too; back it is the transpose and the inverse") {
    source draw{64};
    pulse::onednn::backend host{2};
    oracle plain;
    for (int i = 0; i != 30; ++i) {
        const rotary_shape s{draw.between(1, 9), draw.between(1, 9), draw.between(1, 4), 4 * draw.between(1, 22), 32.0};
        const int batch = draw.between(1, 3);
        const std::int64_t n = std::int64_t{batch} * s.tokens() * s.width();
        tensor x = draw.normal(n);
        tensor y{n};
        host.rotary(s, batch, x.as<float>(), y.as<float>());
        plain.rotary(s, batch, x.as<double>(), y.as<double>());
        CHECK(worst(y, 4.0 * float_unit) < 1.0);
        tensor in_place = x;
        host.rotary(s, batch, in_place.as<float>(), in_place.as<float>());
        CHECK(in_place.single == y.single);
        tensor dy = draw.normal(n);
        tensor dx{n};
        host.rotary_backward(s, batch, dy.as<float>(), dx.as<float>());
        plain.rotary_backward(s, batch, dy.as<double>(), dx.as<double>());
        CHECK(worst(dx, 4.0 * float_unit) < 1.0);
        double there = 0.0;
        double back = 0.0;
        for (std::size_t k = 0; k != y.size(); ++k) {
            there += y.twice[k] * dy.twice[k];
            back += x.twice[k] * dx.twice[k];
        }
        CHECK(std::abs(there - back) < 1e-9);
        host.rotary_backward(s, batch, in_place.as<float>(), in_place.as<float>());
        for (std::size_t k = 0; k != x.size(); ++k) { x.twice[k] = static_cast<double>(in_place.single[k]); }
        CHECK(worst(x, 8.0 * float_unit) < 1.0);
    }
    // By hand: the token in row 1, column 2 of a grid of 2 x 4, one head of 8.
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
    CHECK_THROWS_AS(host.rotary({1, 1, 1, 6, 1.0}, 1, x.as<float>(), x.as<float>()), pulse::input_error);
}

TEST_CASE("an embedding looks rows up, and its gradient adds repeated rows; an index out of range is an error") {
    source draw{65};
    pulse::onednn::backend host;
    oracle plain;
    for (int i = 0; i != 30; ++i) {
        const embedding_shape s{draw.between(1, 6), draw.between(1, 40)};
        const std::int64_t rows = draw.between(1, 12);
        tensor indices{rows};
        for (std::size_t r = 0; r != indices.size(); ++r) {
            indices.twice[r] = draw.between(0, s.entries - 1);
            indices.single[r] = static_cast<float>(indices.twice[r]);
        }
        tensor table = draw.normal(std::int64_t{s.entries} * s.features);
        tensor y{rows * s.features};
        host.embedding(s, rows, indices.as<float>(), table.as<float>(), y.as<float>());
        plain.embedding(s, rows, indices.as<double>(), table.as<double>(), y.as<double>());
        CHECK(worst(y, 1e-12) < 1.0);
        const auto last = static_cast<std::size_t>(rows - 1);
        const auto entry = static_cast<std::size_t>(indices.twice[last]);
        const auto width = static_cast<std::size_t>(s.features);
        CHECK(y.single[(last + 1) * width - 1] == table.single[(entry + 1) * width - 1]);
        tensor dy = draw.normal(rows * s.features);
        tensor dtable = draw.normal(std::int64_t{s.entries} * s.features);
        const tensor before = dtable;
        host.embedding_backward_weight(s, rows, indices.as<float>(), dy.as<float>(), dtable.as<float>());
        plain.embedding_backward_weight(s, rows, indices.as<double>(), dy.as<double>(), dtable.as<double>());
        CHECK(worst(dtable, 16.0 * float_unit) < 1.0);
        for (std::size_t e = 0; e != static_cast<std::size_t>(s.entries); ++e) {
            double sum = before.twice[e * width];
            for (std::size_t r = 0; r != indices.size(); ++r) {
                if (static_cast<std::size_t>(indices.twice[r]) == e) { sum += dy.twice[r * width]; }
            }
            CHECK(std::abs(dtable.twice[e * width] - sum) < 1e-12);
        }
    }
    std::vector<float> table(6, 1.0F);
    std::vector<float> y(2);
    for (const float index : {3.0F, -1.0F, 0.5F, std::numeric_limits<float>::quiet_NaN()}) {
        CHECK_THROWS_AS(host.embedding({3, 2}, 1, &index, table.data(), y.data()), pulse::input_error);
        CHECK_THROWS_AS(host.embedding_backward_weight({3, 2}, 1, &index, y.data(), table.data()), pulse::input_error);
    }
}

TEST_CASE("padding is replaced by learned vectors, whose gradients are those of the rows that they replaced") {
    source draw{66};
    pulse::onednn::backend host{2};
    oracle plain;
    for (int i = 0; i != 30; ++i) {
        const int batch = draw.between(1, 4);
        const int tokens = draw.between(1, 9);
        const int features = draw.between(1, 40);
        const std::int64_t rows = std::int64_t{batch} * tokens;
        tensor mask{rows};
        for (std::size_t r = 0; r != mask.size(); ++r) {
            mask.twice[r] = draw.between(0, 1);
            mask.single[r] = static_cast<float>(mask.twice[r]);
        }
        tensor padding = draw.normal(std::int64_t{tokens} * features);
        tensor y = draw.normal(rows * features);
        const tensor before = y;
        host.replace_padding(batch, tokens, features, mask.as<float>(), padding.as<float>(), y.as<float>());
        plain.replace_padding(batch, tokens, features, mask.as<double>(), padding.as<double>(), y.as<double>());
        tensor dy = draw.normal(rows * features);
        tensor dx{rows * features};
        tensor dpadding{std::int64_t{tokens} * features, 0.5F};
        host.replace_padding_backward(batch, tokens, features, mask.as<float>(), dy.as<float>(), dx.as<float>(),
                                      dpadding.as<float>());
        plain.replace_padding_backward(batch, tokens, features, mask.as<double>(), dy.as<double>(), dx.as<double>(),
                                       dpadding.as<double>());
        CHECK(worst(dpadding, 8.0 * float_unit) < 1.0);
        std::vector<double> expected(dpadding.size(), 0.5);
        for (std::size_t e = 0; e != y.size(); ++e) {
            const bool padded = mask.twice[e / static_cast<std::size_t>(features)] == 0.0;
            const std::size_t at = e % padding.size();
            CHECK(y.single[e] == (padded ? padding.single[at] : before.single[e]));
            CHECK(y.twice[e] == static_cast<double>(y.single[e]));
            CHECK(dx.single[e] == (padded ? 0.0F : dy.single[e]));
            CHECK(dx.twice[e] == static_cast<double>(dx.single[e]));
            if (padded) { expected[at] += dy.twice[e]; }
        }
        for (std::size_t at = 0; at != expected.size(); ++at) {
            CHECK(std::abs(dpadding.twice[at] - expected[at]) < 1e-12);
        }
        tensor in_place = dy;
        tensor again{std::int64_t{tokens} * features, 0.5F};
        host.replace_padding_backward(batch, tokens, features, mask.as<float>(), in_place.as<float>(),
                                      in_place.as<float>(), again.as<float>());
        CHECK(in_place.single == dx.single);
        CHECK(again.single == dpadding.single);
    }
    const int n = 77;
    std::vector<float> x(n);
    for (int e = 0; e != n; ++e) { x[static_cast<std::size_t>(e)] = static_cast<float>(e - 30); }
    host.scale(n, 0.25F, x.data(), x.data());
    for (int e = 0; e != n; ++e) { CHECK(x[static_cast<std::size_t>(e)] == 0.25F * static_cast<float>(e - 30)); }
    std::vector<double> wide{1.0, -2.0};
    plain.scale(2, 0.1, wide.data(), wide.data());
    CHECK(wide == std::vector<double>{0.1, -0.2});
}
