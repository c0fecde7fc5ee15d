#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <doctest/doctest.h>

#include <pulse/onednn/lanes.hpp>

namespace {

using pulse::onednn::floats;
using pulse::onednn::widest;

float exp_of(float x) {
    const floats<widest> wide = pulse::onednn::exp<widest>(pulse::onednn::spread<widest>(x));
    const floats<1> single = pulse::onednn::exp<1>(pulse::onednn::spread<1>(x));
    CHECK(((wide[0] == single[0]) || (std::isnan(wide[0]) && std::isnan(single[0]))));
    return wide[widest - 1];
}

} // namespace

TEST_CASE("exp is within two units in the last place wherever its value is a normal float") {
    std::mt19937 engine{41};
    double worst = 0.0;
    const auto look = [&](float x) {
        const double right = std::exp(static_cast<double>(x));
        const double off = std::abs(static_cast<double>(exp_of(x)) - right) / right;
        worst = std::max(worst, off);
    };
    for (const float span : {1e-3F, 1.0F, 10.0F, 87.3F}) {
        std::uniform_real_distribution<float> draw{-span, span};
        for (int i = 0; i != 20000; ++i) { look(draw(engine)); }
    }
    for (int n = -125; n != 128; ++n) { look((static_cast<float>(n) + 0.5F) * 0.6931472F); }
    look(88.7228F);
    CHECK(worst < 2.0 * static_cast<double>(std::numeric_limits<float>::epsilon()));
}

TEST_CASE("exp2 is within three units in the last place, and bounded below") {
    const auto exp2_of = [](float x) {
        return pulse::onednn::bounded_exp2<widest>(pulse::onednn::spread<widest>(x))[widest - 1];
    };
    std::mt19937 engine{42};
    std::uniform_real_distribution<float> draw{-126.0F, 20.0F};
    double worst = 0.0;
    for (int i = 0; i != 50000; ++i) {
        const float x = draw(engine);
        const double right = std::exp2(static_cast<double>(x));
        worst = std::max(worst, std::abs(static_cast<double>(exp2_of(x)) - right) / right);
    }
    CHECK(worst < 3.0 * static_cast<double>(std::numeric_limits<float>::epsilon()));
    CHECK(exp2_of(-std::numeric_limits<float>::infinity()) == std::ldexp(1.0F, -126));
    CHECK(exp2_of(3.0F) == 8.0F);
    CHECK(std::isnan(exp2_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("exp at the ends of its range") {
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(exp_of(0.0F) == 1.0F);
    CHECK(exp_of(-0.0F) == 1.0F);
    CHECK(exp_of(-infinity) == 0.0F);
    CHECK(exp_of(-200.0F) == 0.0F);
    CHECK(exp_of(infinity) == infinity);
    CHECK(exp_of(89.0F) == infinity);
    CHECK(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("sigmoid saturates and stays finite") {
    const auto sigmoid = [](float x) { return pulse::onednn::sigmoid<widest>(pulse::onednn::spread<widest>(x))[0]; };
    CHECK(sigmoid(0.0F) == 0.5F);
    CHECK(sigmoid(100.0F) == 1.0F);
    CHECK(sigmoid(-100.0F) < 1e-38F);
    CHECK(std::isnan(sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("for_lanes covers a range once, whatever its length") {
    for (std::int64_t n = 0; n != 70; ++n) {
        std::int64_t next = 3;
        pulse::onednn::for_lanes(3, 3 + n, [&]<int W>(std::int64_t i) {
            CHECK(i == next);
            next += W;
        });
        CHECK(next == 3 + n);
    }
}
