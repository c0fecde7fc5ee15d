#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <pulse/train/diffusion_task.hpp>

#include "diffusion_images.hpp"

namespace diffusion_tests {

// The task only refers to its data, so a temporary would be gone before the first step.
static_assert(!std::is_constructible_v<train::diffusion_task<>, train::image_dataset, const train::noise_schedule&,
                                       const train::diffusion_options&>);
static_assert(std::is_constructible_v<train::diffusion_task<>, const train::image_dataset&, train::noise_schedule,
                                      const train::diffusion_options&>);

TEST_CASE("a step's samples, times and losses do not depend on how they are grouped into microbatches") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    struct step {
        std::vector<float> x, times, gradients;
        double loss{};
    };
    const auto run = [&](int batch, int microbatches, double gamma) {
        diffusion_task task{data,
                            schedule,
                            {.seed = 5,
                             .min_snr_gamma = gamma,
                             .noise_offset = gamma / 50,
                             .microbatch_size = batch,
                             .microbatches = microbatches,
                             .model_elements = elements}};
        CHECK(task.samples_of_step() == 12);
        task.begin(1000);
        step all;
        for (int m = 0; m != microbatches; ++m) {
            std::vector<float> x(elements * static_cast<std::size_t>(batch));
            std::vector<float> gradient(x.size());
            double loss = 0;
            const microbatch_of at{m, &loss};
            task.input(at, x);
            const std::vector<float> answer(x.size(), 0.25F);
            task.loss(at, answer, gradient);
            all.loss += loss;
            all.x.insert(all.x.end(), x.begin(), x.end());
            all.times.insert(all.times.end(), task.timesteps(at), task.timesteps(at) + batch);
            all.gradients.insert(all.gradients.end(), gradient.begin(), gradient.end());
        }
        return all;
    };
    for (const double gamma : {0.0, 5.0}) {
        const step want = run(12, 1, gamma);
        for (const auto& [batch, microbatches] : {std::pair{1, 12}, {4, 3}, {3, 4}}) {
            const step found = run(batch, microbatches, gamma);
            CHECK(found.x == want.x);
            CHECK(found.times == want.times);
            CHECK(found.gradients == want.gradients);
            CHECK(found.loss == doctest::Approx(want.loss).epsilon(1e-14));
        }
    }
}

TEST_CASE("what a model reads of samples is that of their positions, each condition of a microbatch behind the other") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    condition_set wanted;
    wanted.add({condition_kind::text_states, 2, 2});
    wanted.add({condition_kind::text_mask, 3});
    wanted.add({condition_kind::pooled_text, 1, 3});
    wanted.add({.kind = condition_kind::class_label, .classes = 5});
    // a number's hundreds are its position, its tens the condition, its ones the place
    const auto number = [](std::uint64_t position, std::size_t which, std::size_t i) {
        return static_cast<float>(100 * position + 10 * which + i);
    };
    diffusion_task task{data,
                        schedule,
                        {.seed = 5, .microbatch_size = 2, .microbatches = 3, .replicas = 2, .replica = 1},
                        {wanted,
                         [&](std::uint64_t position, std::size_t which, std::span<float> to) {
                             for (std::size_t i = 0; i != to.size(); ++i) { to[i] = number(position, which, i); }
                         },
                         5,
                         [&](std::uint64_t position, std::span<float> to) {
                             for (std::size_t i = 0; i != to.size(); ++i) { to[i] = number(position, 9, i); }
                         }}};
    diffusion_task without{
        data, schedule, {.seed = 5, .microbatch_size = 2, .microbatches = 3, .replicas = 2, .replica = 1}};
    task.begin(1000);
    without.begin(1000);
    for (int m = 0; m != 3; ++m) {
        const std::uint64_t first = 1000 + 6 + 2 * static_cast<std::uint64_t>(m);
        std::vector<float> text;
        std::vector<float> facts;
        for (std::size_t which = 0; which != wanted.all().size(); ++which) {
            const condition& one = wanted.all()[which];
            for (std::uint64_t position = first; position != first + 2; ++position) {
                for (std::size_t i = 0; i != static_cast<std::size_t>(one.elements()); ++i) {
                    (one.is_text() ? text : facts).push_back(number(position, which, i));
                }
            }
        }
        const microbatch_of at{m, nullptr};
        CHECK(std::vector<float>(task.text(at), task.text(at) + text.size()) == text);
        CHECK(std::vector<float>(task.facts(at), task.facts(at) + facts.size()) == facts);
        // hints follow the images of the microbatch
        std::vector<float> want(2 * data.elements());
        without.input(at, want);
        for (std::uint64_t position = first; position != first + 2; ++position) {
            for (std::size_t i = 0; i != 5; ++i) { want.push_back(number(position, 9, i)); }
        }
        std::vector<float> x(want.size());
        task.input(at, x);
        CHECK(x == want);
    }
    CHECK(wanted.text_elements() == 7);
    CHECK(wanted.fact_elements() == 4);
}

TEST_CASE("channels of an answer that the image does not have are no part of the loss") {
    constexpr std::size_t channels = 2;
    const image_dataset data{4, 2, channels, std::vector<std::uint8_t>(2 * elements, 90), {}};
    const noise_schedule schedule = noise_schedule::cosine();
    diffusion_task task{data, schedule, {.seed = 5, .microbatch_size = 2}};
    task.begin(3);
    const auto step = [&](std::size_t answered) {
        std::vector<float> values(2 * elements / channels * answered);
        for (std::size_t i = 0; i != values.size(); ++i) {
            const std::size_t pixel = i / answered;
            const std::size_t channel = i % answered;
            values[i] = channel < channels ? static_cast<float>(pixel * channels + channel) / 16 : 1e6F;
        }
        double loss = 0;
        task.loss(microbatch_of{0, &loss}, values, values);
        return std::pair{loss, values};
    };
    const auto [loss, gradient] = step(channels);
    for (const std::size_t answered : {channels + 1, 2 * channels}) {
        const auto [found, wide] = step(answered);
        CHECK(found == loss);
        for (std::size_t i = 0; i != wide.size(); ++i) {
            const std::size_t channel = i % answered;
            CHECK(wide[i] == (channel < channels ? gradient[i / answered * channels + channel] : 0.0F));
        }
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(step(channels - 1)),
                         "diffusion_task: an image has 2 channels, but the model's output has 1", input_error);
}

TEST_CASE("errors of a pixel count as its mask says, and the mean is over all elements") {
    constexpr std::size_t channels = 2;
    constexpr std::size_t pixels = elements / channels;
    std::vector<std::uint8_t> bytes(3 * elements);
    for (std::size_t i = 0; i != bytes.size(); ++i) { bytes[i] = static_cast<std::uint8_t>(i * 37 % 256); }
    const image_dataset data{4, 2, channels, std::move(bytes), {}};
    const auto share = [](std::uint64_t position, std::size_t pixel) {
        return static_cast<float>((position * 5 + pixel * 3) % 8) / 7;
    };
    const auto everywhere = [](float value) {
        return [value](std::uint64_t, std::span<float> to) { std::ranges::fill(to, value); };
    };
    struct step {
        std::vector<double> losses;
        std::vector<float> gradients;
        [[nodiscard]] bool operator==(const step&) const = default;
    };
    for (const std::size_t answered : {channels, channels + 1}) {
        const auto answer_at = [](std::size_t i) { return static_cast<float>(i % 7) / 4; };
        const auto run = [&](const mask_source& masks) {
            diffusion_task task{
                data, rectified_flow{}, {.seed = 5, .microbatch_size = 2, .microbatches = 2}, {}, masks};
            task.begin(70);
            step all;
            for (int m = 0; m != 2; ++m) {
                std::vector<float> values(2 * pixels * answered);
                for (std::size_t i = 0; i != values.size(); ++i) { values[i] = answer_at(i); }
                task.loss(microbatch_of{m, &all.losses.emplace_back()}, values, values);
                all.gradients.insert(all.gradients.end(), values.begin(), values.end());
            }
            return all;
        };
        const step found = run([&](std::uint64_t position, std::span<float> to) {
            REQUIRE(to.size() == pixels);
            for (std::size_t pixel = 0; pixel != pixels; ++pixel) { to[pixel] = share(position, pixel); }
        });
        for (std::size_t m = 0; m != 2; ++m) {
            double want = 0;
            for (std::size_t s = 0; s != 2; ++s) {
                const std::uint64_t position = 70 + 2 * m + s;
                std::vector<float> image(elements);
                std::vector<float> noise(elements);
                data.batch(position, image);
                random_source{5, random_stream::noise}.fill_normal(position * elements, noise);
                for (std::size_t pixel = 0; pixel != pixels; ++pixel) {
                    for (std::size_t c = 0; c != answered; ++c) {
                        const std::size_t place = (s * pixels + pixel) * answered + c;
                        const float gradient = found.gradients[m * 2 * pixels * answered + place];
                        if (c >= channels) {
                            CHECK(gradient == 0);
                            continue;
                        }
                        const std::size_t e = pixel * channels + c;
                        const auto counts = static_cast<double>(share(position, pixel));
                        const double error = static_cast<double>(answer_at(place)) - static_cast<double>(noise[e]) +
                                             static_cast<double>(image[e]);
                        want += counts * error * error / (4 * elements);
                        CHECK(static_cast<double>(gradient) ==
                              doctest::Approx(2 * counts * error / (4 * elements)).epsilon(1e-5).scale(1e-2));
                    }
                }
            }
            CHECK(found.losses[m] == doctest::Approx(want).epsilon(1e-6));
        }
        CHECK(run(everywhere(1)) == run({}));
        CHECK(run(everywhere(1)) != found);
        const step nothing = run(everywhere(0));
        CHECK(nothing.losses == std::vector<double>(2));
        CHECK(nothing.gradients == std::vector<float>(found.gradients.size()));
    }
}

TEST_CASE("replicas share out the microbatches of a step, whose loss is the mean over all of them") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    struct step {
        std::vector<float> x, times, gradients;
        std::vector<double> losses;
    };
    const auto run = [&](int replicas) {
        step all;
        const int microbatches = 6 / replicas;
        for (int replica = 0; replica != replicas; ++replica) {
            diffusion_task task{data,
                                schedule,
                                {.seed = 5,
                                 .microbatch_size = 2,
                                 .microbatches = microbatches,
                                 .replicas = replicas,
                                 .replica = replica,
                                 .model_elements = elements}};
            CHECK(task.samples_of_step() == 12);
            task.begin(1000);
            for (int m = 0; m != microbatches; ++m) {
                std::vector<float> x(elements * 2);
                std::vector<float> gradient(x.size());
                double loss = 0;
                const microbatch_of at{m, &loss};
                task.input(at, x);
                const std::vector<float> answer(x.size(), 0.25F);
                task.loss(at, answer, gradient);
                all.losses.push_back(loss);
                all.x.insert(all.x.end(), x.begin(), x.end());
                all.times.insert(all.times.end(), task.timesteps(at), task.timesteps(at) + 2);
                all.gradients.insert(all.gradients.end(), gradient.begin(), gradient.end());
            }
        }
        return all;
    };
    const step want = run(1);
    for (const int replicas : {2, 3}) {
        const step found = run(replicas);
        CHECK(found.x == want.x);
        CHECK(found.times == want.times);
        CHECK(found.gradients == want.gradients);
        CHECK(found.losses == want.losses);
    }
}

TEST_CASE(
    "what is evaluated has one timestep and the noise of its position, and counts the samples that are asked for") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    const std::vector<float> answer(elements * 2, 0.25F);
    const auto losses_at = [&](auto& task, std::uint64_t position, int time) {
        task.begin(position);
        std::vector<double> losses(2);
        for (int m = 0; m != 2; ++m) {
            const microbatch_of at{m, &losses[static_cast<std::size_t>(m)]};
            std::vector<float> x(elements * 2);
            task.input(at, x);
            std::vector<float> gradient(x.size());
            task.loss(at, answer, gradient);
            for (int s = 0; s != 2; ++s) {
                CHECK(task.timesteps(at)[s] == static_cast<float>(time));
                std::vector<float> image(elements);
                std::vector<float> noise(elements);
                std::vector<float> want(elements);
                const std::uint64_t sample = position + static_cast<std::uint64_t>(2 * m + s);
                data.batch(sample, image);
                random_source{5, random_stream::noise}.fill_normal(sample * elements, noise);
                add_noise<float>(schedule.at(time, prediction_type::epsilon), image, noise, want);
                CHECK(std::equal(want.begin(), want.end(), x.begin() + s * std::ptrdiff_t{elements}));
            }
        }
        return losses;
    };
    const diffusion_options options{.seed = 5,
                                    .min_snr_gamma = 5, // an evaluation ignores it
                                    .microbatch_size = 2,
                                    .microbatches = 2,
                                    .evaluated = evaluation{.timestep = 3, .samples = 1000}};
    diffusion_task task{data, schedule, options};
    const auto early = losses_at(task, 40, 3);
    task.evaluate_at({.timestep = 700, .samples = 1000});
    const auto late = losses_at(task, 40, 700);
    CHECK(late != early);
    CHECK(losses_at(task, 44, 700) != late);
    // First only the step's last sample is past the end, then the last microbatch, then everything.
    task.evaluate_at({.timestep = 700, .samples = 43});
    const auto three = losses_at(task, 40, 700);
    CHECK(three[0] == late[0]);
    CHECK(three[1] > 0);
    CHECK(three[1] < late[1]);
    task.evaluate_at({.timestep = 700, .samples = 42});
    CHECK(losses_at(task, 40, 700) == std::vector{late[0], 0.0});
    task.evaluate_at({.timestep = 700, .samples = 40});
    CHECK(losses_at(task, 40, 700) == std::vector{0.0, 0.0});

    CHECK_THROWS_WITH_AS(task.evaluate_at({.timestep = 1000, .samples = 1}),
                         "diffusion_task: evaluated.timestep must be 0 to 999 with this noise schedule, not 1000",
                         input_error);
}

TEST_CASE("a task for a model of another size, or without samples, is refused by name") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    const auto make = [&](const diffusion_options& o) { diffusion_task{data, schedule, o}; };
    CHECK_NOTHROW(make({.model_elements = 16}));
    CHECK_THROWS_WITH_AS(make({.model_elements = 64}),
                         "diffusion_task: an image has 16 elements, but the model's input has 64", input_error);
    CHECK_THROWS_WITH_AS(make({.microbatch_size = 0}), "diffusion_task: microbatch_size must be at least 1",
                         input_error);
    CHECK_THROWS_WITH_AS(make({.microbatches = -1}), "diffusion_task: microbatches must be at least 1", input_error);
    CHECK_THROWS_AS(make({.min_snr_gamma = -1.0}), input_error);
    CHECK_THROWS_AS(make({.noise_offset = -0.1}), input_error);
    const noise_schedule zero = schedule.with_zero_terminal_snr();
    CHECK_THROWS_AS((diffusion_task{data, zero, {.prediction = prediction_type::epsilon}}), input_error);
    CHECK_NOTHROW(diffusion_task{data, zero, {.prediction = prediction_type::sample}});
    CHECK_THROWS_WITH_AS(make({.replicas = 0}), "diffusion_task: replicas must be at least 1", input_error);
    CHECK_THROWS_AS(make({.replicas = 2, .replica = 2}), input_error);
    CHECK_THROWS_AS(make({.replica = -1}), input_error);
}

TEST_CASE("a loss that is not finite is kept, for the optimizer to see") {
    const image_dataset data = images();
    const noise_schedule schedule = noise_schedule::linear();
    diffusion_task task{data, schedule, {}};
    task.begin(0);
    std::vector<float> answer(elements, 1.0F);
    std::vector<float> gradient(elements);
    double loss = 0;
    task.loss(microbatch_of{0, &loss}, answer, gradient);
    CHECK(std::isfinite(loss));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        answer[5] = bad;
        task.loss(microbatch_of{0, &loss}, answer, gradient);
        CHECK(!std::isfinite(loss));
        loss = 0;
    }
}

} // namespace diffusion_tests
