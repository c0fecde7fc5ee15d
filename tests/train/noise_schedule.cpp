#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/train/noise_schedule.hpp>
#include <pulse/train/random.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace {

using namespace pulse::train;

std::vector<noise_schedule> schedules() {
    return {noise_schedule::linear(),
            noise_schedule::cosine(),
            noise_schedule::linear(250, 4e-4, 0.08),
            noise_schedule::cosine(100, 0.02),
            noise_schedule::linear(1, 0.5, 0.5),
            noise_schedule::scaled_linear(),
            noise_schedule{{0.1, 0.9, 0.2}}};
}

/// All prediction types that are defined at every step.
std::vector<prediction_type> predictions_of(const noise_schedule& schedule) {
    if (schedule.has_zero_terminal_snr()) { return {prediction_type::velocity, prediction_type::sample}; }
    return {prediction_type::epsilon, prediction_type::velocity, prediction_type::sample};
}

template <class T>
std::vector<T> normals(std::uint64_t seed, std::size_t count) {
    std::vector<T> out(count);
    for (std::size_t i = 0; i != count; ++i) {
        out[i] = static_cast<T>(random_source{seed, random_stream::noise}.normal(i));
    }
    return out;
}

} // namespace

TEST_CASE("variance is preserved, noise only grows, the tables agree with their definition") {
    for (const auto& schedule : schedules()) {
        double product = 1;
        for (int t = 0; t != schedule.steps(); ++t) {
            const auto at = static_cast<std::size_t>(t);
            product *= 1 - schedule.betas()[at];
            CHECK(schedule.alpha_cumprod(t) == doctest::Approx(product).epsilon(1e-13));
            CHECK(schedule.signal(t) * schedule.signal(t) + schedule.sigma(t) * schedule.sigma(t) ==
                  doctest::Approx(1).epsilon(1e-14));
            CHECK(schedule.alpha_cumprod(t) < schedule.alpha_cumprod(t - 1));
            CHECK(schedule.alpha_cumprod(t) > 0);
            CHECK(schedule.snr(t) ==
                  doctest::Approx(std::pow(schedule.signal(t) / schedule.sigma(t), 2)).epsilon(1e-12));
        }
        CHECK(schedule.alpha_cumprod(-1) == 1);
    }
}

TEST_CASE("the linear schedule is that of the DDPM paper") {
    const auto schedule = noise_schedule::linear();
    REQUIRE(schedule.steps() == 1000);
    CHECK(schedule.betas()[0] == 1e-4);
    CHECK(schedule.betas()[999] == 0.02);
    for (std::size_t t = 2; t != 1000; ++t) {
        CHECK(schedule.betas()[t] - schedule.betas()[t - 1] ==
              doctest::Approx(schedule.betas()[1] - schedule.betas()[0]).epsilon(1e-9));
    }
    // Section 4 of the paper: the signal left at the end, L_T, is about 1e-5 bits per dimension.
    CHECK(schedule.alpha_cumprod(999) == doctest::Approx(4.04e-5).epsilon(0.01));
}

TEST_CASE("the cosine schedule follows its closed form until betas are capped") {
    const double pi = std::acos(-1.0);
    for (const int steps : {50, 1000}) {
        const auto schedule = noise_schedule::cosine(steps);
        const auto f = [&](double t) { return std::pow(std::cos((t / steps + 0.008) / 1.008 * pi / 2), 2); };
        for (int t = 0; t != steps; ++t) {
            const auto at = static_cast<std::size_t>(t);
            if (schedule.betas()[at] < 0.999) {
                CHECK(schedule.alpha_cumprod(t) == doctest::Approx(f(t + 1.0) / f(0)).epsilon(1e-9));
            }
            CHECK(schedule.betas()[at] <= 0.999);
        }
        CHECK(schedule.betas()[static_cast<std::size_t>(steps - 1)] == 0.999);
    }
}

TEST_CASE_TEMPLATE("what is mixed can be taken apart again", T, float, double) {
    const std::size_t n = 37;
    const auto x0 = normals<T>(1, n);
    const auto noise = normals<T>(2, n);
    const double unit = sizeof(T) == 4 ? 1.2e-7 : 2.3e-16;
    auto all = schedules();
    all.push_back(noise_schedule::scaled_linear().with_zero_terminal_snr());
    for (const auto& schedule : all) {
        for (int step = 0; step < schedule.steps(); step += 1 + schedule.steps() / 13) {
            const int t = schedule.steps() - 1 - step;
            std::vector<T> x_t(n);
            add_noise<T>(schedule.at(t, prediction_type::epsilon), x0, noise, x_t);
            for (std::size_t i = 0; i != n; ++i) {
                const double expected =
                    schedule.signal(t) * static_cast<double>(x0[i]) + schedule.sigma(t) * static_cast<double>(noise[i]);
                CHECK(std::abs(static_cast<double>(x_t[i]) - expected) <= 20 * unit);
            }
            for (const auto type : predictions_of(schedule)) {
                std::vector<T> answer(n);
                std::vector<T> image(n);
                std::vector<T> found_noise(n);
                std::vector<T> again(n);
                training_target<T>(schedule.at(t, type), x0, noise, answer);
                predicted_x0<T>(schedule, type, t, x_t, answer, image);
                predicted_noise<T>(schedule, type, t, x_t, answer, found_noise);
                noise_of<T>(schedule, t, x_t, x0, again);
                // Dividing by a (or s) amplifies rounding errors.
                const double amplified = type == prediction_type::epsilon ? 1 / schedule.signal(t) : 1;
                const double divided = type == prediction_type::sample ? 1 / schedule.sigma(t) : 1;
                for (std::size_t i = 0; i != n; ++i) {
                    CHECK(std::abs(static_cast<double>(image[i] - x0[i])) <= 40 * unit * amplified);
                    CHECK(std::abs(static_cast<double>(found_noise[i] - noise[i])) <= 40 * unit * divided);
                    CHECK(std::abs(static_cast<double>(again[i] - noise[i])) <= 40 * unit / schedule.sigma(t));
                }
            }
        }
    }
}

TEST_CASE("v is the derivative of x_t with respect to the angle of signal and noise") {
    const auto schedule = noise_schedule::cosine();
    const auto x0 = normals<double>(5, 8);
    const auto noise = normals<double>(6, 8);
    std::vector<double> v(8);
    for (const int t : {3, 400, 900}) {
        training_target<double>(schedule.at(t, prediction_type::velocity), x0, noise, v);
        const double angle = std::atan2(schedule.sigma(t), schedule.signal(t));
        const double h = 1e-5;
        for (std::size_t i = 0; i != 8; ++i) {
            const auto mixed = [&](double a) { return std::cos(a) * x0[i] + std::sin(a) * noise[i]; };
            CHECK(v[i] == doctest::Approx((mixed(angle + h) - mixed(angle - h)) / (2 * h)).epsilon(1e-7));
        }
    }
}

TEST_CASE("the roots of scaled betas rise evenly between those of the ends") {
    const auto schedule = noise_schedule::scaled_linear(1000, 0.00085, 0.012);
    CHECK(schedule.betas()[0] == doctest::Approx(0.00085).epsilon(1e-12));
    CHECK(schedule.betas()[999] == doctest::Approx(0.012).epsilon(1e-12));
    for (std::size_t t = 2; t != 1000; ++t) {
        const auto root = [&](std::size_t at) { return std::sqrt(schedule.betas()[at]); };
        CHECK(root(t) - root(t - 1) == doctest::Approx(root(1) - root(0)).epsilon(1e-9));
    }
}

TEST_CASE("zero terminal SNR leaves nothing of the image at the last step, and the first step as it was") {
    for (const auto& before : {noise_schedule::linear(), noise_schedule::scaled_linear(), noise_schedule::cosine(50)}) {
        const auto after = before.with_zero_terminal_snr();
        const int last = before.steps() - 1;
        CHECK_FALSE(before.has_zero_terminal_snr());
        CHECK(after.has_zero_terminal_snr());
        CHECK(after.alpha_cumprod(last) == 0);
        CHECK(after.signal(last) == 0);
        CHECK(after.sigma(last) == 1);
        CHECK(after.snr(last) == 0);
        CHECK(after.betas()[static_cast<std::size_t>(last)] == 1);
        CHECK(after.signal(0) == doctest::Approx(before.signal(0)).epsilon(1e-14));
        // The rescaled signals are a linear function of the original ones.
        const double slope = after.signal(0) / (before.signal(0) - before.signal(last));
        double product = 1;
        for (int t = 0; t <= last; ++t) {
            product *= 1 - after.betas()[static_cast<std::size_t>(t)];
            CHECK(after.alpha_cumprod(t) == doctest::Approx(product).epsilon(1e-9));
            CHECK(after.signal(t) == doctest::Approx(slope * (before.signal(t) - before.signal(last))).epsilon(1e-12));
        }

        const std::vector<double> image{0.5, -0.25};
        const std::vector<double> noise{1.5, -2};
        std::vector<double> out(2);
        add_noise<double>(after.at(last, prediction_type::epsilon), image, noise, out);
        CHECK(out == noise);
        training_target<double>(after.at(last, prediction_type::velocity), image, noise, out);
        CHECK(out == std::vector{-0.5, 0.25});
    }
    CHECK_THROWS_AS(static_cast<void>(noise_schedule::linear(1).with_zero_terminal_snr()), pulse::input_error);
}

TEST_CASE("settings stand for a schedule, in which epsilon and zero terminal SNR exclude each other") {
    const auto same = [](const noise_schedule& one, const noise_schedule& other) {
        return std::equal(one.alphas_cumprod().begin(), one.alphas_cumprod().end(), other.alphas_cumprod().begin(),
                          other.alphas_cumprod().end());
    };
    CHECK(same(schedule_of({}), noise_schedule::linear()));
    CHECK(same(schedule_of({.train_steps = 70, .betas = beta_shape::squared_cosine}), noise_schedule::cosine(70)));
    scheduler_settings latent{.betas = beta_shape::scaled_linear, .beta_start = 0.00085, .beta_end = 0.012};
    CHECK(same(schedule_of(latent), noise_schedule::scaled_linear()));
    latent.zero_terminal_snr = true;
    CHECK_THROWS_WITH_AS(
        static_cast<void>(schedule_of(latent)),
        "noise schedule: epsilon cannot be predicted with zero terminal SNR, because the last step is all "
        "noise: predict v or the sample",
        pulse::input_error);
    for (const auto type : {prediction_type::velocity, prediction_type::sample}) {
        latent.prediction = type;
        CHECK(same(schedule_of(latent), noise_schedule::scaled_linear().with_zero_terminal_snr()));
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(schedule_of({.train_steps = 0})),
                         "scheduler settings: num_train_timesteps must be 1 to 1000000, not 0", pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.train_steps = 2'000'000'000})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.steps_offset = 1000})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.steps_offset = -1})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.clip_sample_range = 0.0})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.beta_end = 1.0})), pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(schedule_of({.betas = beta_shape::scaled_linear, .beta_start = -0.1})),
                    pulse::input_error);
}

TEST_CASE("bad schedules are refused by name") {
    CHECK_THROWS_WITH_AS(static_cast<void>(noise_schedule::linear(0)),
                         "noise schedule: steps must be at least 1, not 0", pulse::input_error);
    CHECK_THROWS_AS(static_cast<void>(noise_schedule::cosine(-3)), pulse::input_error);
    CHECK_THROWS_WITH_AS((noise_schedule{{0.1, 1.0}}), "noise schedule: beta 1 must be above 0 and below 1",
                         pulse::input_error);
    CHECK_THROWS_AS((noise_schedule{{std::nan("")}}), pulse::input_error);
    CHECK_THROWS_AS((noise_schedule{std::vector<double>{}}), pulse::input_error);
}
