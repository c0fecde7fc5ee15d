#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/train/sampler.hpp>

#include "known_networks.hpp"

namespace {

using namespace pulse::train;
using pulse::test::knows_the_gaussian;
using pulse::test::knows_the_image;

} // namespace

TEST_CASE("times fall from the last step, evenly") {
    const auto schedule = noise_schedule::linear(1000);
    for (const int count : {1, 2, 3, 7, 50, 333, 999, 1000}) {
        const auto times = ddim_timesteps(schedule, count);
        REQUIRE(times.size() == static_cast<std::size_t>(count));
        CHECK(times.front() == 999);
        for (std::size_t i = 1; i < times.size(); ++i) {
            const int gap = times[i - 1] - times[i];
            CHECK(std::abs(gap - 1000.0 / count) <= 1.0);
        }
        CHECK(times.back() >= 0);
        CHECK(std::abs(times.back() + 1 - 1000.0 / count) <= 0.5);
    }
    for (const int count : {0, -1, 1001}) {
        CHECK_THROWS_AS(static_cast<void>(ddim_timesteps(schedule, count)), pulse::input_error);
    }
}

TEST_CASE("a perfect network's image is recovered") {
    for (const auto& schedule : {noise_schedule::linear(200, 5e-4, 0.1), noise_schedule::cosine(1000)}) {
        for (const auto type : {prediction_type::epsilon, prediction_type::velocity}) {
            for (const int steps : {1, 2, 10, 200}) {
                for (const bool clip : {false, true}) {
                    std::vector<float> image(17);
                    random_source{9, 9}.fill_normal(0, image);
                    for (float& x : image) { x = std::clamp(x / 2, -0.99F, 0.99F); }
                    const knows_the_image network{schedule, type, image};
                    std::vector<float> out(3 * image.size());
                    ddim_sample(schedule, {.steps = steps, .clip_x0 = clip, .prediction = type, .seed = 4}, 3, out,
                                network);
                    for (std::size_t i = 0; i != out.size(); ++i) {
                        CHECK(out[i] == doctest::Approx(image[i % image.size()]).epsilon(0.002));
                    }
                }
            }
        }
    }
}

TEST_CASE("with the exact network of a Gaussian the samples have its variance") {
    const auto schedule = noise_schedule::linear();
    std::vector<float> out(40'000);
    ddim_sample(schedule, {.steps = 250, .clip_x0 = false, .seed = 12}, 40, out, knows_the_gaussian{schedule, 0.09});
    double mean = 0;
    double square = 0;
    for (const float x : out) {
        mean += static_cast<double>(x) / static_cast<double>(out.size());
        square += static_cast<double>(x) * static_cast<double>(x) / static_cast<double>(out.size());
    }
    CHECK(std::abs(mean) < 5 * 0.3 / 200);
    CHECK(square == doctest::Approx(0.09).epsilon(0.06)); // 250 steps for 1000: a few percent of discretisation
}

TEST_CASE("an image depends on its number and the seed, not on its neighbours") {
    const auto schedule = noise_schedule::cosine(100);
    const std::size_t size = 13;
    const knows_the_gaussian network{schedule, 0.2};
    std::vector<float> all(6 * size);
    const ddim_options options{.steps = 10, .clip_x0 = false, .seed = 77};
    ddim_sample(schedule, options, 6, all, network);
    for (std::uint64_t k = 0; k != 6; ++k) {
        std::vector<float> one(size);
        auto alone = options;
        alone.first_sample = k;
        ddim_sample(schedule, alone, 1, one, network);
        CHECK(std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(k * size)));
    }
    std::vector<float> other(6 * size);
    auto seeded = options;
    seeded.seed = 78;
    ddim_sample(schedule, seeded, 6, other, network);
    CHECK(other != all);
}

TEST_CASE("clipping keeps images in range whatever the network says") {
    const auto schedule = noise_schedule::linear();
    std::vector<float> out(256);
    ddim_sample(schedule, {.steps = 20, .seed = 1}, 4, out,
                [](std::span<const float> x, std::span<const float>, std::span<float> answer) {
                    for (std::size_t i = 0; i != x.size(); ++i) { answer[i] = -3 * x[i]; }
                });
    for (const float x : out) { CHECK(std::abs(x) <= 1.0F); }
}

TEST_CASE("sizes and options out of range are refused") {
    const auto schedule = noise_schedule::linear();
    std::vector<float> out(10);
    const auto nothing = [](std::span<const float>, std::span<const float>, std::span<float>) {};
    CHECK_THROWS_AS(ddim_sample(schedule, {}, 3, out, nothing), pulse::input_error);
    CHECK_THROWS_AS(ddim_sample(schedule, {}, 0, out, nothing), pulse::input_error);
    CHECK_THROWS_AS(ddim_sample(schedule, {.steps = 0}, 2, out, nothing), pulse::input_error);
}
