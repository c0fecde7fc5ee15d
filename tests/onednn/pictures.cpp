#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <onednn/parity.hpp>
#include <pulse/core/error.hpp>
#include <pulse/onednn/backend.hpp>

using namespace onednn_tests;
using pulse::group_norm_shape;

TEST_CASE("statistics and rows of group norm equal the plain loops in double") {
    source draw{71};
    for (const int threads : {1, 2}) {
        pulse::onednn::backend host{threads};
        oracle plain;
        for (const auto& [shape, rows] : std::vector<std::pair<group_norm_shape, int>>{{{32, 0, 8, 60}, 5},
                                                                                       {{17, 0, 1, 30}, 3},
                                                                                       {{5, 0, 5, 1}, 1},
                                                                                       {{48, 0, 3, 77}, 7},
                                                                                       {{128, 0, 32, 96}, 6}}) {
            for (const bool silu : {false, true}) {
                group_norm_shape s = shape;
                s.silu = silu;
                CAPTURE(s.channels);
                CAPTURE(silu);
                const int batch = draw.between(1, 3);
                const int width = s.pixels / rows;
                const std::int64_t stride = std::int64_t{width + 2} * s.channels + 3;
                tensor x = draw.normal(std::int64_t{batch} * s.pixels * s.channels, 1.5, 0.3);
                tensor gamma = draw.normal(s.channels);
                tensor beta = draw.normal(s.channels);
                tensor statistics{std::int64_t{batch} * s.groups * 2};
                host.group_norm_statistics(s, batch, x.as<float>(), statistics.as<float>());
                plain.group_norm_statistics(s, batch, x.as<double>(), statistics.as<double>());
                const double relative = 15.0 * static_cast<double>(std::numeric_limits<float>::epsilon());
                CHECK(worst(statistics, relative) < 1.0);
                // what lies between the rows stays: both begin with the same numbers
                tensor y = draw.normal(rows * stride);
                const std::int64_t last = (batch - 1) * std::int64_t{s.pixels} * s.channels;
                const std::int64_t known = (batch - 1) * std::int64_t{s.groups} * 2;
                host.group_norm_rows(s, rows, width, x.as<float>() + last, gamma.as<float>(), beta.as<float>(),
                                     statistics.as<float>() + known, y.as<float>(), stride);
                plain.group_norm_rows(s, rows, width, x.as<double>() + last, gamma.as<double>(), beta.as<double>(),
                                      statistics.as<double>() + known, y.as<double>(), stride);
                CHECK(worst(y, relative) < 1.0);
            }
        }
    }
}

TEST_CASE("posteriors are drawn as the plain loops in double draw them") {
    source draw{72};
    for (const int threads : {1, 2}) {
        pulse::onednn::backend host{threads};
        oracle plain;
        for (const int channels : {1, 3, 4, 16, 21}) {
            CAPTURE(channels);
            constexpr std::int64_t pixels = 37;
            tensor moments = draw.normal(pixels * 2 * channels, 3.0);
            // beyond the limits on both sides
            moments.single[static_cast<std::size_t>(channels)] = -50.0F;
            moments.twice[static_cast<std::size_t>(channels)] = -50.0;
            moments.single[static_cast<std::size_t>(3 * channels)] = 30.0F;
            moments.twice[static_cast<std::size_t>(3 * channels)] = 30.0;
            tensor noise = draw.normal(pixels * channels);
            tensor z{pixels * channels};
            host.posterior(pixels, channels, 0.18215F, moments.as<float>(), noise.as<float>(), z.as<float>());
            plain.posterior(pixels, channels, static_cast<double>(0.18215F), moments.as<double>(), noise.as<double>(),
                            z.as<double>());
            std::vector<double> size;
            for (const double v : z.twice) { size.push_back(std::abs(v) + 1.0); }
            CHECK(worst(z, size, 2e-6) < 1.0);
        }
    }
}

TEST_CASE("operations of pictures refuse groups that are none") {
    pulse::onednn::backend host;
    CHECK_THROWS_WITH_AS(host.group_norm_statistics({10, 0, 4, 6}, 1, nullptr, nullptr),
                         "pulse: group_norm_statistics: 4 groups of 10 + 0 channels, 1 of 6 pixels",
                         pulse::input_error);
    CHECK_THROWS_AS(host.group_norm_rows({8, 8, 4, 6}, 1, 6, nullptr, nullptr, nullptr, nullptr, nullptr, 0),
                    pulse::input_error);
}
