#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/train/loss.hpp>

namespace {

using namespace pulse::train;

template <class T>
std::vector<T> random_values(std::mt19937_64& engine, std::size_t count) {
    std::normal_distribution<double> normal;
    std::vector<T> values(count);
    for (T& value : values) { value = static_cast<T>(normal(engine)); }
    return values;
}

} // namespace

TEST_CASE("the gradient of the loss equals finite differences") {
    std::mt19937_64 engine{1};
    for (int round = 0; round != 20; ++round) {
        const auto n = static_cast<std::size_t>(1 + engine() % 50);
        auto prediction = random_values<double>(engine, n);
        const auto target = random_values<double>(engine, n);
        const double weight = 0.1 + static_cast<double>(engine() % 100) / 30;
        const auto elements = static_cast<std::int64_t>(n + engine() % 100);
        std::vector<double> gradient(n);
        std::vector<double> unused(n);
        mean_squared_error<double>(prediction, target, elements, gradient, weight);
        for (std::size_t i = 0; i != n; ++i) {
            const double h = 1e-5;
            const double kept = prediction[i];
            prediction[i] = kept + h;
            const double above = mean_squared_error<double>(prediction, target, elements, unused, weight);
            prediction[i] = kept - h;
            const double below = mean_squared_error<double>(prediction, target, elements, unused, weight);
            prediction[i] = kept;
            CHECK(gradient[i] == doctest::Approx((above - below) / (2 * h)).epsilon(1e-6));
        }
    }
}

TEST_CASE("microbatches add up to the step's mean") {
    std::mt19937_64 engine{2};
    const std::size_t n = 6 * 35;
    const auto prediction = random_values<float>(engine, n);
    const auto target = random_values<float>(engine, n);
    double mean = 0;
    for (std::size_t i = 0; i != n; ++i) {
        mean +=
            std::pow(static_cast<double>(prediction[i]) - static_cast<double>(target[i]), 2) / static_cast<double>(n);
    }
    std::vector<float> whole(n);
    CHECK(mean_squared_error<float>(prediction, target, static_cast<std::int64_t>(n), whole) ==
          doctest::Approx(mean).epsilon(1e-6));
    for (const std::size_t parts : {1U, 2U, 3U, 6U}) {
        const std::size_t size = n / parts;
        std::vector<float> gradient(n);
        double loss = 0;
        for (std::size_t p = 0; p != parts; ++p) {
            loss += mean_squared_error<float>(std::span{prediction}.subspan(p * size, size),
                                              std::span{target}.subspan(p * size, size), static_cast<std::int64_t>(n),
                                              std::span{gradient}.subspan(p * size, size));
        }
        CHECK(loss == doctest::Approx(mean).epsilon(1e-6));
        CHECK(gradient == whole); // bit for bit: no element's gradient depends on the cut
    }
}

TEST_CASE("the gradient may overwrite the prediction") {
    std::mt19937_64 engine{3};
    auto prediction = random_values<float>(engine, 64);
    const auto target = random_values<float>(engine, 64);
    std::vector<float> gradient(64);
    const double loss = mean_squared_error<float>(prediction, target, 64, gradient);
    CHECK(mean_squared_error<float>(prediction, target, 64, prediction) == loss);
    CHECK(prediction == gradient);
}

TEST_CASE("min-SNR weights: the x0 loss capped at gamma, whatever the network predicts") {
    std::mt19937_64 engine{5};
    for (const auto& schedule : {noise_schedule::linear(), noise_schedule::scaled_linear().with_zero_terminal_snr()}) {
        for (int step = 0; step < 1000; step += 37) {
            const int t = 999 - step;
            const double snr = schedule.snr(t);
            const auto x0 = random_values<double>(engine, 20);
            const auto noise = random_values<double>(engine, 20);
            std::vector<double> x_t(20);
            add_noise<double>(schedule.at(t, prediction_type::epsilon), x0, noise, x_t);
            for (const double gamma : {1.0, 5.0, 20.0}) {
                for (const auto type : {prediction_type::epsilon, prediction_type::velocity, prediction_type::sample}) {
                    if (type == prediction_type::epsilon && snr == 0) { continue; }
                    std::vector<double> target(20);
                    std::vector<double> unused(20);
                    std::vector<double> image(20);
                    training_target<double>(schedule.at(t, type), x0, noise, target);
                    auto answer = random_values<double>(engine, 20);
                    for (std::size_t i = 0; i != 20; ++i) { answer[i] += target[i]; }
                    predicted_x0<double>(schedule, type, t, x_t, answer, image);
                    // The loss of the answer with this weight equals the loss of the implied image times min(snr,
                    // gamma).
                    const double weight = min_snr_weight(schedule, type, t, gamma);
                    CHECK(mean_squared_error<double>(answer, target, 20, unused, weight) ==
                          doctest::Approx(mean_squared_error<double>(image, x0, 20, unused, std::min(snr, gamma)))
                              .epsilon(1e-7));
                }
            }
            if (snr > 0) {
                const double infinite = std::numeric_limits<double>::infinity();
                CHECK(min_snr_weight(schedule, prediction_type::epsilon, t, infinite) == 1);
            }
        }
    }
}
