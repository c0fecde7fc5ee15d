#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::into;

namespace {
constexpr double epsilon = static_cast<double>(std::numeric_limits<float>::epsilon());
} // namespace

TEST_CASE("element-wise operations equal the plain loops in double") {
    source draw{31};
    pulse::onednn::backend host;
    oracle plain;
    for (const std::int64_t n : {0, 1, 3, 8, 15, 16, 31, 1000, 40000}) {
        CAPTURE(n);
        tensor x = draw.normal(n, 4.0);
        const tensor dy = draw.normal(n);
        const auto ones = std::vector<double>(x.size(), 20.0);

        tensor y{n};
        host.silu(n, x.as<float>(), y.as<float>());
        plain.silu(n, x.as<double>(), y.as<double>());
        CHECK(worst(y, ones, epsilon) < 1.0);
        tensor in_place = x;
        host.silu(n, in_place.as<float>(), in_place.as<float>());
        CHECK(in_place.single == y.single);

        for (const into how : {into::write, into::add}) {
            tensor dx = how == into::write ? tensor{n} : draw.normal(n);
            tensor g = dy;
            host.silu_backward(n, x.as<float>(), g.as<float>(), dx.as<float>(), how);
            plain.silu_backward(n, x.as<double>(), g.as<double>(), dx.as<double>(), how);
            CHECK(worst(dx, ones, epsilon) < 1.0);
            if (how == into::write) {
                host.silu_backward(n, x.as<float>(), g.as<float>(), g.as<float>(), how);
                CHECK(g.single == dx.single);
            }
        }
        tensor sum = dy;
        host.add(n, x.as<float>(), sum.as<float>());
        plain.add(n, x.as<double>(), sum.as<double>());
        CHECK(worst(sum, ones, epsilon) < 1.0);
        tensor same{n};
        host.copy(n, x.as<float>(), same.as<float>());
        CHECK(same.single == x.single);
        host.fill(n, 2.5F, same.as<float>());
        CHECK(same.single == std::vector<float>(same.size(), 2.5F));
    }
}

TEST_CASE("operations over pixels equal the plain loops in double") {
    source draw{32};
    pulse::onednn::backend host;
    oracle plain;
    for (int i = 0; i != 60; ++i) {
        const int batch = draw.between(1, 5);
        const int height = draw.between(1, 14);
        const int width = draw.between(1, 14);
        const int channels = draw.between(1, 70);
        const int pixels = height * width;
        const std::int64_t n = std::int64_t{batch} * pixels * channels;
        CAPTURE(batch);
        CAPTURE(pixels);
        CAPTURE(channels);
        tensor t = draw.normal(std::int64_t{batch} * channels);
        tensor y = draw.normal(n);
        host.add_per_sample(batch, pixels, channels, t.as<float>(), y.as<float>());
        plain.add_per_sample(batch, pixels, channels, t.as<double>(), y.as<double>());
        CHECK(worst(y, epsilon) < 1.0);

        y = draw.normal(n);
        tensor most = magnitudes(y);
        tensor sums{std::int64_t{batch} * channels};
        tensor bound = sums;
        host.sum_pixels(batch, pixels, channels, y.as<float>(), sums.as<float>());
        plain.sum_pixels(batch, pixels, channels, y.as<double>(), sums.as<double>());
        plain.sum_pixels(batch, pixels, channels, most.as<double>(), bound.as<double>());
        CHECK(worst(sums, bound.twice, rounding(pixels)) < 1.0);

        // All pixels of all samples are rows, and what is there stays in the sum.
        tensor kept = draw.normal(channels);
        tensor kept_bound = magnitudes(kept);
        host.sum_rows(std::int64_t{batch} * pixels, channels, y.as<float>(), kept.as<float>());
        plain.sum_rows(std::int64_t{batch} * pixels, channels, y.as<double>(), kept.as<double>());
        plain.sum_rows(std::int64_t{batch} * pixels, channels, most.as<double>(), kept_bound.as<double>());
        CHECK(worst(kept, kept_bound.twice, rounding(batch * pixels + 1)) < 1.0);

        tensor up{4 * n};
        host.upsample_nearest(batch, height, width, channels, y.as<float>(), up.as<float>());
        plain.upsample_nearest(batch, height, width, channels, y.as<double>(), up.as<double>());
        CHECK(worst(up, 1e-12) < 1.0);
        tensor dup = draw.normal(4 * n);
        tensor dx{n};
        host.upsample_nearest_backward(batch, height, width, channels, dup.as<float>(), dx.as<float>());
        plain.upsample_nearest_backward(batch, height, width, channels, dup.as<double>(), dx.as<double>());
        CHECK(worst(dx, 4.0 * epsilon) < 1.0);
    }
}

TEST_CASE("the sinusoid of timesteps equals the plain one") {
    pulse::onednn::backend host;
    oracle plain;
    tensor t{6};
    const std::vector<float> steps{0.0F, 1.0F, 17.0F, 250.0F, 999.0F, 0.5F};
    for (std::size_t i = 0; i != steps.size(); ++i) {
        t.single[i] = steps[i];
        t.twice[i] = static_cast<double>(steps[i]);
    }
    for (const int features : {2, 32, 128}) {
        for (const bool flip : {false, true}) {
            for (const double shift : {0.0, 0.5}) {
                tensor e{std::int64_t{6} * features};
                host.sinusoid(6, features, flip, shift, t.as<float>(), e.as<float>());
                plain.sinusoid(6, features, flip, shift, t.as<double>(), e.as<double>());
                CHECK(worst(e, epsilon) < 1.0);
            }
        }
    }
}
