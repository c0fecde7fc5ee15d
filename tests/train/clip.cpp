#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/train/clip.hpp>

using namespace pulse::train;

TEST_CASE("the sum of squares is that of long double, for every size") {
    std::mt19937_64 engine{1};
    std::normal_distribution<float> normal;
    for (std::size_t n = 0; n != 100; ++n) {
        std::vector<float> g(n);
        long double expected = 0;
        for (float& x : g) {
            x = normal(engine);
            expected += static_cast<long double>(x) * static_cast<long double>(x);
        }
        CHECK(sum_of_squares<float>(g) == doctest::Approx(static_cast<double>(expected)).epsilon(1e-14));
    }
}

TEST_CASE("after clipping the whole gradient has the norm that was asked for") {
    std::mt19937_64 engine{2};
    std::normal_distribution<double> normal;
    for (int round = 0; round != 100; ++round) {
        std::vector<std::vector<double>> tensors(1 + engine() % 7);
        std::vector<double> squares;
        for (auto& tensor : tensors) {
            tensor.resize(engine() % 40);
            for (double& x : tensor) { x = normal(engine); }
            squares.push_back(sum_of_squares<double>(tensor));
        }
        const double limit = 0.1 + static_cast<double>(engine() % 100) / 10;
        const auto clip = clip_by_global_norm(squares, limit);
        double after = 0;
        double before = 0;
        for (const auto& tensor : tensors) {
            for (const double x : tensor) {
                before += x * x;
                after += x * clip.scale * x * clip.scale;
            }
        }
        CHECK(clip.norm == doctest::Approx(std::sqrt(before)).epsilon(1e-12));
        CHECK(std::sqrt(after) == doctest::Approx(std::min(clip.norm, limit)).epsilon(1e-12));
        CHECK((clip.norm > limit || clip.scale == 1.0));
        CHECK(clip_by_global_norm(squares, 0).scale == 1.0);
    }
}

TEST_CASE("a gradient that is not finite is named") {
    const std::vector<double> nan{1.0, std::nan(""), 2.0};
    CHECK_THROWS_WITH_AS(static_cast<void>(clip_by_global_norm(nan, 1.0)),
                         "the gradient of tensor 1 of the model is not finite", pulse::error);
    const std::vector<double> infinite{1.0, 1.0, std::numeric_limits<double>::infinity()};
    CHECK_THROWS_AS(static_cast<void>(clip_by_global_norm(infinite, 0.0)), pulse::error);
}
