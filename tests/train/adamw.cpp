#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>

#include <pulse/train/adamw.hpp>
#include <pulse/train/ema.hpp>
#include <pulse/train/learning_rate.hpp>

#include <io/scratch.hpp>
#include <support/skip.hpp>

namespace {

using namespace pulse::train;

/// Algorithm 2 of the paper, one weight at a time, written from the paper, not from adamw.hpp.
struct paper_adamw {
    double theta;
    double m = 0;
    double v = 0;
    int t = 0;

    void step(double g, const adamw_constants& c) {
        ++t;
        m = c.beta1 * m + (1 - c.beta1) * g;
        v = c.beta2 * v + (1 - c.beta2) * g * g;
        const double m_hat = m / (1 - std::pow(c.beta1, t));
        const double v_hat = v / (1 - std::pow(c.beta2, t));
        theta -= c.learning_rate * m_hat / (std::sqrt(v_hat) + c.epsilon) + c.learning_rate * c.weight_decay * theta;
    }
};

std::vector<adamw_constants> options() {
    return {{},
            {.learning_rate = 0.1, .weight_decay = 0},
            {.learning_rate = 3e-4, .beta1 = 0.95, .beta2 = 0.99, .epsilon = 1e-6, .weight_decay = 0.1},
            {.learning_rate = 1e-2, .beta1 = 0, .beta2 = 0.5, .epsilon = 1e-3, .weight_decay = 1}};
}

template <class T>
double worst_against_paper(const adamw_constants& constants, double gradient_scale) {
    std::mt19937_64 engine{5};
    std::normal_distribution<double> normal;
    const std::size_t n = 45; // not a multiple of any vector width
    std::vector<T> w(n);
    std::vector<T> g(n);
    std::vector<T> m(n);
    std::vector<T> v(n);
    std::vector<paper_adamw> paper;
    for (T& weight : w) {
        weight = static_cast<T>(normal(engine));
        paper.push_back({.theta = static_cast<double>(weight)});
    }
    double worst = 0;
    for (std::int64_t step = 1; step <= 50; ++step) {
        for (std::size_t i = 0; i != n; ++i) {
            g[i] = static_cast<T>(normal(engine) * std::pow(10.0, static_cast<double>(i % 5) - 3));
            paper[i].step(static_cast<double>(g[i]) * gradient_scale, constants);
        }
        adamw_step<T>(factors_of<T>(constants, step, gradient_scale), w, g, m, v);
        for (std::size_t i = 0; i != n; ++i) {
            worst = std::max(worst, std::abs(static_cast<double>(w[i]) - paper[i].theta));
        }
    }
    return worst;
}

} // namespace

TEST_CASE("AdamW equals the paper's algorithm") {
    for (const auto& constants : options()) {
        for (const double scale : {1.0, 0.25}) {
            CHECK(worst_against_paper<double>(constants, scale) < 1e-12);
            // Weights of about 1 over 50 float steps: each step rounds weight and update by an ulp or two.
            CHECK(worst_against_paper<float>(constants, scale) < 50 * 4 * 1.2e-7 * (1 + 10 * constants.learning_rate));
        }
    }
}

TEST_CASE("a step is the same whatever part of a tensor it is given") {
    std::mt19937_64 engine{6};
    std::normal_distribution<float> normal;
    const std::size_t n = 101;
    std::array<std::vector<float>, 4> whole;
    for (auto& values : whole) {
        values.resize(n);
        for (float& x : values) { x = std::abs(normal(engine)); }
    }
    auto parts = whole;
    const auto factors = factors_of<float>({}, 3);
    adamw_step<float>(factors, whole[0], whole[1], whole[2], whole[3]);
    for (std::size_t at = 0; at < n; at += 7) {
        const std::size_t size = std::min<std::size_t>(7, n - at);
        adamw_step<float>(factors, std::span{parts[0]}.subspan(at, size), std::span{parts[1]}.subspan(at, size),
                          std::span{parts[2]}.subspan(at, size), std::span{parts[3]}.subspan(at, size));
    }
    CHECK(parts == whole);
}

TEST_CASE("AdamW equals torch.optim.AdamW over 20 steps") {
    const pulse::test::scratch folder;
    const std::size_t n = 64;
    const int steps = 20;
    std::mt19937_64 engine{7};
    std::normal_distribution<float> normal;
    std::vector<float> start(n);
    std::vector<float> gradients(n * steps);
    for (float& x : start) { x = normal(engine); }
    for (float& x : gradients) { x = 0.1F * normal(engine); }
    {
        std::ofstream out{folder.path / "in", std::ios::binary};
        out.write(reinterpret_cast<const char*>(start.data()), static_cast<std::streamsize>(4 * start.size()));
        out.write(reinterpret_cast<const char*>(gradients.data()), static_cast<std::streamsize>(4 * gradients.size()));
    }
    // one process for all sets of constants
    std::string command = "'" PULSE_TEST_PYTHON "' '" PULSE_TEST_ADAMW_SCRIPT "' '" + folder.path.string() + "' " +
                          std::to_string(n) + " " + std::to_string(steps);
    for (const auto& constants : options()) {
        std::array<char, 200> numbers{};
        std::snprintf(numbers.data(), numbers.size(), " %.17g %.17g %.17g %.17g %.17g", constants.learning_rate,
                      constants.beta1, constants.beta2, constants.epsilon, constants.weight_decay);
        command += numbers.data();
    }
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) { return pulse::test::skip("no python3 with torch"); }
    REQUIRE(WEXITSTATUS(status) == 0);
    std::ifstream in{folder.path / "out", std::ios::binary};
    for (const auto& constants : options()) {
        std::vector<float> torch(3 * n);
        in.read(reinterpret_cast<char*>(torch.data()), static_cast<std::streamsize>(4 * torch.size()));
        REQUIRE(in.gcount() == static_cast<std::streamsize>(4 * torch.size()));

        std::vector<float> w = start;
        std::vector<float> m(n);
        std::vector<float> v(n);
        for (int step = 1; step <= steps; ++step) {
            adamw_step<float>(factors_of<float>(constants, step), w,
                              std::span<const float>{gradients}.subspan(n * static_cast<std::size_t>(step - 1), n), m,
                              v);
        }
        for (std::size_t i = 0; i != n; ++i) {
            CHECK(w[i] == doctest::Approx(torch[i]).epsilon(5e-6));
            CHECK(m[i] == doctest::Approx(torch[n + i]).epsilon(5e-6));
            CHECK(v[i] == doctest::Approx(torch[2 * n + i]).epsilon(5e-6));
        }
    }
}

TEST_CASE("the moving average warms up, then keeps its decay") {
    CHECK(ema_decay(1, 0.999) == doctest::Approx(2.0 / 11.0));
    CHECK(ema_decay(1'000'000, 0.999) == 0.999);
    for (std::int64_t step = 1; step != 10'000; ++step) { CHECK(ema_decay(step) <= ema_decay(step + 1)); }

    // Compared with the exact sum, in double.
    std::mt19937_64 engine{8};
    std::normal_distribution<double> normal;
    std::vector<double> average{normal(engine)};
    std::vector<double> weights{average[0]};
    for (std::int64_t step = 1; step != 60; ++step) {
        const std::vector<double> now{normal(engine)};
        weights.push_back(now[0]);
        ema_update<double>(ema_decay(step, 0.9), now, average);
    }
    double expected = 0;
    double share = 1;
    for (std::size_t i = weights.size(); i-- != 0;) {
        const double decay = i == 0 ? 0 : ema_decay(static_cast<std::int64_t>(i), 0.9);
        expected += share * (1 - decay) * weights[i];
        share *= decay;
    }
    CHECK(average[0] == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("the learning rate warms up on a line and falls on another or on a cosine") {
    const learning_rate_schedule constant{.peak = 2, .warmup_steps = 10};
    CHECK(constant.at(1) == doctest::Approx(0.2));
    CHECK(constant.at(5) == doctest::Approx(1));
    CHECK(constant.at(10) == 2);
    CHECK(constant.at(100'000) == 2);
    CHECK(learning_rate_schedule{.peak = 3}.at(1) == 3);

    const learning_rate_schedule line{
        .peak = 2, .warmup_steps = 10, .shape = learning_rate_shape::linear, .total_steps = 110, .last = 0.5};
    CHECK(line.at(5) == 1);
    CHECK(line.at(10) == 2);
    CHECK(line.at(60) == doctest::Approx(1.25));
    CHECK(line.at(109) - line.at(110) == doctest::Approx(0.015));
    CHECK(line.at(110) == 0.5);
    CHECK(line.at(1000) == 0.5);

    const learning_rate_schedule cosine{
        .peak = 2, .warmup_steps = 10, .shape = learning_rate_shape::cosine, .total_steps = 110, .last = 0.5};
    CHECK(cosine.at(10) == doctest::Approx(2));
    CHECK(cosine.at(60) == doctest::Approx(1.25));
    CHECK(cosine.at(110) == 0.5);
    CHECK(cosine.at(1000) == 0.5);
    for (std::int64_t step = 10; step != 115; ++step) { CHECK(cosine.at(step + 1) <= cosine.at(step)); }
}
