#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/train/draw_images.hpp>
#include <pulse/train/enlarging.hpp>
#include <pulse/train/guidance.hpp>
#include <pulse/train/self_conditioned.hpp>

#include "known_networks.hpp"

namespace {

using namespace pulse::train;
using pulse::test::knows_the_gaussian;
using pulse::test::knows_the_image;

constexpr sampler_kind kinds[]{sampler_kind::ddim, sampler_kind::dpm_solver};
constexpr timestep_spacing spacings[]{timestep_spacing::leading, timestep_spacing::trailing,
                                      timestep_spacing::linspace};

} // namespace

TEST_CASE("a perfect network's image is recovered, by every sampler, spacing and prediction") {
    std::vector<float> image(17);
    random_source{9, 9}.fill_normal(0, image);
    for (float& x : image) { x = std::clamp(x / 2, -0.99F, 0.99F); }
    for (const auto kind : kinds) {
        for (const auto spacing : spacings) {
            for (const auto type : {prediction_type::epsilon, prediction_type::velocity, prediction_type::sample}) {
                for (const bool zero : {false, true}) {
                    if (zero && type == prediction_type::epsilon) { continue; }
                    for (const int steps : {1, 2, 10, 50}) {
                        const scheduler_settings settings{.train_steps = 200,
                                                          .beta_start = 5e-4,
                                                          .beta_end = 0.1,
                                                          .zero_terminal_snr = zero,
                                                          .prediction = type,
                                                          .spacing = spacing,
                                                          .steps_offset = 1,
                                                          .clip_sample = steps % 2 == 0};
                        std::vector<float> out(3 * image.size());
                        draw_images(settings, {.kind = kind, .steps = steps, .seed = 4}, 3, out,
                                    knows_the_image{schedule_of(settings), type, image});
                        for (std::size_t i = 0; i != out.size(); ++i) {
                            CHECK(out[i] == doctest::Approx(image[i % image.size()]).epsilon(0.002));
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE(
    "a perfect network's image is recovered from flow and EDM, and a Gaussian's flow is followed to the first order") {
    std::vector<float> image(17);
    random_source{9, 9}.fill_normal(0, image);
    const scheduler_settings all[]{{.flow = rectified_flow{}},
                                   {.flow = rectified_flow{.shift = 3}},
                                   {.flow = rectified_flow{.by_size = true}},
                                   {.edm = edm_noise{}},
                                   {.edm = edm_noise{.sigma_data = 1, .velocity = true}}};
    for (const scheduler_settings& settings : all) {
        for (const int steps : {1, 2, 10, 50}) {
            const auto levels =
                settings.flow ? sampling_levels(*settings.flow, steps, 2048) : sampling_levels(*settings.edm, steps);
            std::size_t step = 0;
            std::vector<float> out(3 * image.size());
            draw_images(settings, {.steps = steps, .seed = 4, .pixels = 2048}, 3, out,
                        [&](std::span<const float> x, std::span<const float> times, std::span<float> answer) {
                            const noise_level level = levels.at(step++);
                            CHECK(times[2] == static_cast<float>(level.time));
                            std::vector<float> noise(x.size());
                            std::vector<float> x0;
                            for (int k = 0; k != 3; ++k) { x0.insert(x0.end(), image.begin(), image.end()); }
                            for (std::size_t i = 0; i != x.size(); ++i) {
                                noise[i] =
                                    (x[i] - static_cast<float>(level.signal) * x0[i]) / static_cast<float>(level.sigma);
                            }
                            training_target<float>(level, x0, noise, answer);
                        });
            CHECK(step == static_cast<std::size_t>(steps));
            for (std::size_t i = 0; i != out.size(); ++i) {
                CHECK(out[i] == doctest::Approx(image[i % image.size()]).epsilon(0.002).scale(1));
            }
        }
        // For images from N(0, v), the flow maps a noise sample to sqrt(v) times it.
        constexpr double variance = 0.3;
        const auto error_of = [&](int steps) {
            const auto levels =
                settings.flow ? sampling_levels(*settings.flow, steps, 2048) : sampling_levels(*settings.edm, steps);
            std::size_t step = 0;
            std::vector<float> start;
            std::vector<float> out(100);
            draw_images(settings, {.steps = steps, .pixels = 2048}, 1, out,
                        [&](std::span<const float> x, std::span<const float>, std::span<float> answer) {
                            const noise_level l = levels.at(step++);
                            if (start.empty()) { start.assign(x.begin(), x.end()); }
                            const double of_x = l.signal * l.signal * variance + l.sigma * l.sigma;
                            const double x0 = l.signal * variance / of_x;
                            const double eps = l.sigma / of_x;
                            for (std::size_t i = 0; i != x.size(); ++i) {
                                answer[i] = static_cast<float>(l.target_image * x0 + l.target_noise * eps) * x[i];
                            }
                        });
            double sum = 0;
            const noise_level first = levels.front();
            const double of_start = std::sqrt(first.signal * first.signal * variance + first.sigma * first.sigma);
            for (std::size_t i = 0; i != out.size(); ++i) {
                sum += std::pow(
                    static_cast<double>(out[i]) - std::sqrt(variance) / of_start * static_cast<double>(start[i]), 2);
            }
            return std::sqrt(sum / 100);
        };
        CHECK(error_of(100) / error_of(200) == doctest::Approx(2).epsilon(0.1));
    }
    std::vector<float> out(10);
    const auto nothing = [](std::span<const float>, std::span<const float>, std::span<float>) {};
    for (const scheduler_settings& settings : all) {
        for (const int steps : {0, 1001}) {
            CHECK_THROWS_AS(draw_images(settings, {.steps = steps, .pixels = 64}, 2, out, nothing), pulse::input_error);
        }
    }
    CHECK_THROWS_AS(draw_images({.flow = rectified_flow{}, .edm = edm_noise{}}, {}, 2, out, nothing),
                    pulse::input_error);
    CHECK_THROWS_WITH_AS(draw_images({.flow = rectified_flow{.by_size = true}}, {}, 2, out, nothing),
                         "sampler: pixels must be at least 1 for a flow that is shifted by size", pulse::input_error);
}

TEST_CASE("a self-conditioned network is shown what it predicted in the step before, and zeros at first") {
    constexpr std::size_t channels = 2;
    constexpr std::size_t each = 6;
    const scheduler_settings all[]{{.prediction = prediction_type::velocity, .clip_sample = false},
                                   {.flow = rectified_flow{.shift = 3}},
                                   {.edm = edm_noise{}}};
    for (const scheduler_settings& settings : all) {
        const noise_process process = process_of(settings);
        std::vector<float> before(2 * each);
        int asked = 0;
        const auto inner = [&](std::span<const float> x, std::span<const float> times, std::span<float> answer) {
            REQUIRE(x.size() == 2 * answer.size());
            std::vector<float> noisy(answer.size());
            for (std::size_t e = 0; e != answer.size(); ++e) {
                const std::size_t place = e / channels * 2 * channels + e % channels;
                noisy[e] = x[place];
                CHECK(x[place + channels] == std::clamp(before[e], -8.0F, 8.0F));
                answer[e] = std::sin(x[place] + 0.5F * x[place + channels]);
            }
            std::vector<float> noise(answer.size());
            const noise_level level = process.at_time(static_cast<double>(times[0]), settings.prediction);
            CHECK(level.time == doctest::Approx(static_cast<double>(times[0])));
            read_answer<float>(level, noisy, std::span<const float>{answer}, before, noise);
            ++asked;
        };
        std::vector<float> out(2 * each);
        draw_images(settings, {.steps = 5, .seed = 1}, 2, out,
                    self_conditioned{process, settings.prediction, static_cast<int>(channels), inner});
        CHECK(asked == 5);
    }
}

TEST_CASE("the second network of a cascade is shown the small images, enlarged, beside what it draws") {
    constexpr std::size_t channels = 2;
    constexpr std::size_t width = 6;
    constexpr std::size_t height = 4;
    constexpr std::size_t each = height * width * channels;
    constexpr std::size_t small_each = each / 4;
    std::vector<float> small(3 * small_each);
    random_source{1, 1}.fill_normal(0, small);
    for (const double noise : {0.0, 0.5, 20.0}) {
        const enlargement how{.times = 2, .width = width, .noise = noise};
        int asked = 0;
        const auto shows_from = [&](std::uint64_t first) {
            return [&, first](std::span<const float> x, std::span<const float>, std::span<float> answer) {
                REQUIRE(x.size() == 2 * answer.size());
                const random_source numbers{9, random_stream::enlargement};
                for (std::size_t e = 0; e != answer.size(); ++e) {
                    const std::size_t pixel = e / channels;
                    const std::size_t row = pixel / width / 2; // of all small images together
                    const std::size_t from = (row * (width / 2) + pixel % width / 2) * channels + e % channels;
                    const double want = static_cast<double>(small[first * small_each + from]) +
                                        noise * static_cast<double>(numbers.normal(first * small_each + from));
                    CHECK(static_cast<double>(x[pixel * 2 * channels + channels + e % channels]) ==
                          doctest::Approx(want).epsilon(1e-6));
                    answer[e] = std::sin(x[pixel * 2 * channels + e % channels] + static_cast<float>(want));
                }
                ++asked;
            };
        };
        const auto draw = [&](std::uint64_t first, std::size_t count) {
            const auto from = small.begin() + static_cast<std::ptrdiff_t>(first * small_each);
            std::vector<float> out(count * each);
            draw_images({}, {.steps = 5, .seed = 9, .first_sample = first}, count, out,
                        enlarging{how, channels, count,
                                  std::vector<float>(from, from + static_cast<std::ptrdiff_t>(count * small_each)), 9,
                                  first, shows_from(first)});
            return out;
        };
        const std::vector<float> all = draw(0, 3);
        CHECK(asked == 5);
        const std::vector<float> last = draw(2, 1);
        CHECK(std::equal(last.begin(), last.end(), all.begin() + 2 * each));
    }
    const auto nothing = [](std::span<const float>, std::span<const float>, std::span<float>) {};
    const auto make = [&](const enlargement& how, std::size_t samples, std::size_t elements) {
        return enlarging{how, channels, samples, std::vector<float>(elements), 9, 0, nothing};
    };
    const enlargement how{.times = 2, .width = width};
    for (const auto& [samples, elements] : {std::pair{0, 12}, {3, 0}, {3, 35}}) {
        CHECK_THROWS_WITH_AS(make(how, static_cast<std::size_t>(samples), static_cast<std::size_t>(elements)),
                             "enlarging: the small images must be one per sample", pulse::input_error);
    }
    CHECK_THROWS_WITH_AS(make({.times = 2, .width = 10}, 1, 12),
                         "enlargement: an image of 24 pixels cannot be split into rows of width 10",
                         pulse::input_error);
    CHECK_THROWS_AS(make({.times = 1, .width = width}, 1, 12), pulse::input_error);
    std::vector<float> out(2 * each);
    CHECK_THROWS_WITH_AS(draw_images({}, {.steps = 2}, 2, out, make(how, 1, small_each)),
                         "enlarging: the images to draw must have the size of the enlarged ones", pulse::input_error);
}

TEST_CASE("where a stride is whole, both ways to DDIM are one") {
    const scheduler_settings settings{
        .betas = beta_shape::squared_cosine, .spacing = timestep_spacing::trailing, .clip_sample = false};
    const auto schedule = schedule_of(settings);
    for (const int steps : {1, 10, 50, 125, 1000}) {
        std::vector<float> one(30);
        std::vector<float> other(30);
        const knows_the_gaussian network{schedule, 0.2};
        draw_images(settings, {.steps = steps, .seed = 5, .first_sample = 7}, 3, one, network);
        ddim_sample(schedule,
                    {.steps = steps, .clip_x0 = false, .prediction = settings.prediction, .seed = 5, .first_sample = 7},
                    3, other, network);
        CHECK(one == other);
    }
}

TEST_CASE("the last step of DDIM may end at the noise of time 0") {
    const scheduler_settings settings{
        .prediction = prediction_type::sample, .set_alpha_to_one = false, .clip_sample = false};
    const auto schedule = schedule_of(settings);
    std::vector<float> x;
    std::vector<float> out(8);
    draw_images(settings, {.steps = 10}, 1, out,
                [&](std::span<const float> images, std::span<const float>, std::span<float> answer) {
                    x.assign(images.begin(), images.end());
                    std::fill(answer.begin(), answer.end(), 0.5F);
                });
    // The network last saw time 0, so the last step changes nothing.
    CHECK(sampling_steps(settings, sampler_kind::ddim, 10).back().time == 0);
    for (std::size_t i = 0; i != 8; ++i) { CHECK(out[i] == doctest::Approx(x[i]).epsilon(1e-5)); }
}

TEST_CASE("DPM-Solver follows the flow of a Gaussian to the second order, DDIM to the first") {
    const scheduler_settings settings{.betas = beta_shape::scaled_linear,
                                      .beta_start = 0.00085,
                                      .beta_end = 0.012,
                                      .spacing = timestep_spacing::trailing,
                                      .clip_sample = false};
    const auto schedule = schedule_of(settings);
    const knows_the_gaussian network{schedule, 0.3};
    // The flow scales x by the ratio of deviations; the error is how far halfway is from that.
    const auto deviation = [&](int t) {
        const double bar = schedule.alpha_cumprod(t);
        return std::sqrt(bar * network.variance + 1 - bar);
    };
    const auto error_of = [&](sampler_kind kind, int steps) {
        std::vector<float> start;
        double sum = 0;
        std::vector<float> out(100);
        draw_images(settings, {.kind = kind, .steps = steps}, 1, out,
                    [&](std::span<const float> x, std::span<const float> times, std::span<float> answer) {
                        if (start.empty()) { start.assign(x.begin(), x.end()); }
                        for (std::size_t i = 0; times[0] == 499 && i != 100; ++i) {
                            const double exact = deviation(499) / deviation(999) * static_cast<double>(start[i]);
                            sum += std::pow(static_cast<double>(x[i]) - exact, 2);
                        }
                        network(x, times, answer);
                    });
        return std::sqrt(sum / 100);
    };
    for (const int steps : {10, 20}) {
        CHECK(error_of(sampler_kind::ddim, steps) / error_of(sampler_kind::ddim, 2 * steps) ==
              doctest::Approx(2).epsilon(0.1));
        CHECK(error_of(sampler_kind::dpm_solver, steps) / error_of(sampler_kind::dpm_solver, 2 * steps) ==
              doctest::Approx(4).epsilon(0.1));
    }
}

TEST_CASE("an image depends on its number and the seed, not on its neighbours, for every sampler") {
    const scheduler_settings settings{};
    const knows_the_gaussian network{schedule_of(settings), 0.2};
    const std::size_t size = 13;
    for (const auto kind : kinds) {
        std::vector<float> all(6 * size);
        draw_images(settings, {.kind = kind, .steps = 10, .seed = 77}, 6, all, network);
        for (std::uint64_t k = 0; k != 6; ++k) {
            std::vector<float> one(size);
            draw_images(settings, {.kind = kind, .steps = 10, .seed = 77, .first_sample = k}, 1, one, network);
            CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(k * size)));
        }
    }
}

TEST_CASE("guidance goes from one answer through the other") {
    int asked = 0;
    const auto wanted = [](std::span<const float> x, std::span<const float>, std::span<float> answer) {
        std::transform(x.begin(), x.end(), answer.begin(), [](float v) { return 2 * v; });
    };
    const auto other = [&](std::span<const float> x, std::span<const float> times, std::span<float> answer) {
        ++asked;
        std::transform(x.begin(), x.end(), answer.begin(), [&](float v) { return v + static_cast<float>(times[0]); });
    };
    const std::vector<float> x{1, -2, 0.5};
    const std::vector<float> times{8};
    const auto answer_at = [&](double scale) {
        std::vector<float> answer(3);
        guided both{scale, wanted, other};
        both(x, times, answer);
        return answer;
    };
    CHECK(answer_at(1) == std::vector<float>{2, -4, 1});
    CHECK(asked == 0);
    CHECK(answer_at(0) == std::vector<float>{9, 6, 8.5});
    CHECK(answer_at(2) == std::vector<float>{-5, -14, -6.5});
    CHECK(answer_at(-1) == std::vector<float>{16, 16, 16});
    CHECK(asked == 3);
}

TEST_CASE("settings and options out of range are refused") {
    std::vector<float> out(10);
    const auto nothing = [](std::span<const float>, std::span<const float>, std::span<float>) {};
    const auto draw = [&](const scheduler_settings& settings, const drawing_options& options, std::size_t samples = 2) {
        draw_images(settings, options, samples, out, nothing);
    };
    CHECK_THROWS_AS(draw({}, {}, 3), pulse::input_error);
    CHECK_THROWS_AS(draw({}, {}, 0), pulse::input_error);
    CHECK_THROWS_AS(draw({.zero_terminal_snr = true}, {}), pulse::input_error);
    for (const int steps : {0, -1, 1001}) {
        for (const auto kind : kinds) { CHECK_THROWS_AS(draw({}, {.kind = kind, .steps = steps}), pulse::input_error); }
    }
    CHECK_NOTHROW(draw({}, {.steps = 1000}));
    CHECK_THROWS_WITH_AS(draw({.steps_offset = 1}, {.steps = 1000}),
                         "sampler: 1000 steps do not fit into 1000 training timesteps", pulse::input_error);
    CHECK_THROWS_AS(draw({}, {.kind = sampler_kind::dpm_solver, .steps = 1000}), pulse::input_error);
    CHECK_NOTHROW(draw({.spacing = timestep_spacing::linspace}, {.kind = sampler_kind::dpm_solver, .steps = 999}));
}
