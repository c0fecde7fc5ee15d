#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <pulse/train/diffusion_task.hpp>

#include "diffusion_images.hpp"

namespace diffusion_tests {

TEST_CASE("times of flow and EDM are spread as they should be, and are functions of seed and position") {
    constexpr std::uint64_t samples = 20'000;
    const auto moments_of = [&](const noise_process& process, const auto& number_of) {
        double sum = 0;
        double squares = 0;
        for (std::uint64_t position = 0; position != samples; ++position) {
            const noise_level level = process.drawn(3, position, prediction_type::epsilon, 64);
            CHECK(level.sigma == process.drawn(3, position, prediction_type::epsilon, 64).sigma);
            const double number = number_of(level);
            sum += number;
            squares += number * number;
        }
        const double mean = sum / samples;
        return std::pair{mean, std::sqrt(squares / samples - mean * mean)};
    };
    const auto logit = [](const noise_level& level) { return std::log(level.sigma / level.signal); };
    for (const double shift : {1.0, 3.0}) {
        // A shift adds its logarithm to the mean of the logit.
        const auto [mean, deviation] =
            moments_of(rectified_flow{.shift = shift, .time_mean = 0.5, .time_deviation = 2}, logit);
        CHECK(mean == doctest::Approx(0.5 + std::log(shift)).epsilon(0.05).scale(1));
        CHECK(deviation == doctest::Approx(2).epsilon(0.03));
    }
    const auto [middle, width] = moments_of(rectified_flow{.times = time_density::uniform},
                                            [](const noise_level& level) { return level.sigma; });
    CHECK(middle == doctest::Approx(0.5).epsilon(0.02));
    CHECK(width == doctest::Approx(1 / std::sqrt(12)).epsilon(0.02));
    const auto [log_mean, log_deviation] = moments_of(edm_noise{.sigma_data = 2}, [](const noise_level& level) {
        CHECK(level.time == doctest::Approx(std::log(level.sigma / level.signal) / 4));
        return std::log(level.sigma / level.signal);
    });
    CHECK(log_mean == doctest::Approx(-1.2).epsilon(0.03));
    CHECK(log_deviation == doctest::Approx(1.2).epsilon(0.03));

    const rectified_flow by_size{.shift = 9, .by_size = true};
    CHECK(by_size.shift_of(4 * 256) == doctest::Approx(std::exp(0.5)));
    CHECK(by_size.shift_of(4 * 4096) == doctest::Approx(std::exp(1.15)));
    CHECK_THROWS_WITH_AS(noise_process{rectified_flow{.shift = 0}}, "rectified flow: shift must be above 0 and finite",
                         input_error);
    CHECK_THROWS_WITH_AS(noise_process{edm_noise{.sigma_min = 90}},
                         "EDM: sigma_min must be above 0 and below sigma_max, which must be finite", input_error);
}

TEST_CASE("the input and the loss of flow and EDM are their formulas") {
    const image_dataset data = images();
    const auto check = [&](const noise_process& process, const auto& formula) {
        diffusion_task task{data, process, {.seed = 5, .microbatch_size = 2}};
        task.begin(70);
        double loss = 0;
        const microbatch_of at{0, &loss};
        std::vector<float> x(elements * 2);
        task.input(at, x);
        const std::vector<float> answer(x.size(), 0.25F);
        std::vector<float> gradient(x.size());
        task.loss(at, answer, gradient);
        double want = 0;
        for (std::size_t s = 0; s != 2; ++s) {
            std::vector<float> image(elements);
            std::vector<float> noise(elements);
            data.batch(70 + s, image);
            random_source{5, random_stream::noise}.fill_normal((70 + s) * elements, noise);
            for (std::size_t e = 0; e != elements; ++e) {
                const auto time = static_cast<double>(task.timesteps(at)[s]);
                const auto [seen, target] = formula(time, static_cast<double>(image[e]), static_cast<double>(noise[e]));
                CHECK(static_cast<double>(x[s * elements + e]) == doctest::Approx(seen).epsilon(1e-4).scale(1));
                want += std::pow(0.25 - target, 2) / (2 * elements);
                CHECK(static_cast<double>(gradient[s * elements + e]) ==
                      doctest::Approx((0.25 - target) / elements).epsilon(1e-4).scale(1));
            }
        }
        CHECK(loss == doctest::Approx(want).epsilon(1e-4));
    };
    check(rectified_flow{.shift = 2}, [](double time, double image, double noise) {
        return std::pair{(1 - time / 1000) * image + time / 1000 * noise, noise - image};
    });
    check(edm_noise{}, [](double time, double image, double noise) {
        // Table 1 of Karras et al.; the weight of D's error is 1 / c_out^2.
        const double sigma = std::exp(4 * time);
        const double whole = sigma * sigma + 0.25;
        const double noisy = image + sigma * noise;
        return std::pair{noisy / std::sqrt(whole), (image - 0.25 / whole * noisy) / (0.5 * sigma / std::sqrt(whole))};
    });
    CHECK_THROWS_WITH_AS((diffusion_task{data, rectified_flow{}, {.min_snr_gamma = 5}}),
                         "diffusion_task: min_snr_gamma needs a noise schedule of betas", input_error);
}

TEST_CASE("a self-conditioned model reads what it predicted of the image beside the input") {
    constexpr std::size_t channels = 2;
    const image_dataset data{4, 2, channels, std::vector<std::uint8_t>(3 * elements, 90), {}};
    const noise_process processes[]{noise_schedule::linear(), rectified_flow{}, edm_noise{}};
    for (const noise_process& process : processes) {
        for (const std::size_t answered : {channels, channels + 1}) {
            diffusion_options options{.seed = 5, .prediction = prediction_type::velocity, .microbatch_size = 2};
            diffusion_task plain{data, process, options};
            options.self_conditioned = true;
            options.model_elements = 2 * elements;
            diffusion_task task{data, process, options};
            plain.begin(30);
            task.begin(30);
            double loss = 0;
            const microbatch_of at{0, &loss};
            std::vector<float> noisy(2 * elements);
            plain.input(at, noisy);
            std::vector<float> answer(2 * elements / channels * answered);
            random_source{1, 1}.fill_normal(0, answer);
            const auto check = [&](std::span<const float> prediction) {
                std::vector<float> x(4 * elements);
                task.input(at, x, prediction);
                std::vector<float> without(x.size());
                task.input(at, without);
                CHECK((without == x) == prediction.empty());
                for (std::size_t e = 0; e != noisy.size(); ++e) {
                    const std::size_t pixel = e / channels;
                    const std::size_t c = e % channels;
                    const std::uint64_t sample = 30 + e / elements;
                    const noise_level level = process.drawn(5, sample, options.prediction, elements / channels);
                    CHECK(x[2 * channels * pixel + c] == noisy[e]);
                    double image = 0;
                    if (!prediction.empty()) {
                        // solves a x0 + s eps = x and p x0 + q eps = answer
                        const double both = level.signal * level.target_noise - level.sigma * level.target_image;
                        image = (level.target_noise * static_cast<double>(noisy[e]) -
                                 level.sigma * static_cast<double>(prediction[pixel * answered + c])) /
                                both;
                    }
                    CHECK(static_cast<double>(x[2 * channels * pixel + channels + c]) ==
                          doctest::Approx(std::clamp(image, -8.0, 8.0)).epsilon(1e-4).scale(1));
                }
            };
            check({});
            check(answer);
            CHECK_THROWS_WITH_AS(plain.input(at, noisy, answer),
                                 "diffusion_task: self_conditioned must be set, because the plan has previews",
                                 input_error);
        }
    }
}

TEST_CASE("a model of a cascade reads the means of squares and a normal number of each beside the input") {
    constexpr std::size_t height = 6;
    constexpr std::size_t width = 12;
    constexpr std::size_t channels = 2;
    constexpr std::size_t each = height * width * channels;
    std::vector<std::uint8_t> bytes(5 * 4 * 10 * channels);
    for (std::size_t i = 0; i != bytes.size(); ++i) { bytes[i] = static_cast<std::uint8_t>(i * 37 % 256); }
    const image_dataset data{4, 10, channels, std::move(bytes), {.seed = 3, .horizontal_flip = true, .padding = 1}};
    REQUIRE(data.elements() == each);
    const noise_process processes[]{noise_schedule::linear(), rectified_flow{}, edm_noise{}};
    const auto values_of = [&](diffusion_task<>& task, std::size_t of_sample, std::uint64_t position, int samples) {
        task.begin(position);
        std::vector<float> all(of_sample * static_cast<std::size_t>(samples));
        task.input(microbatch_of{}, all);
        return all;
    };
    for (const noise_process& process : processes) {
        for (const std::size_t times : {std::size_t{2}, std::size_t{3}}) {
            for (const double noise : {0.0, 0.5, 20.0}) {
                for (const bool evaluated : {false, true}) {
                    diffusion_options options{.seed = 5, .prediction = prediction_type::velocity, .microbatch_size = 3};
                    if (evaluated) { options.evaluated = evaluation{.timestep = 400, .samples = 1000}; }
                    diffusion_task plain{data, process, options};
                    options.model_elements = 2 * each;
                    options.enlarged = enlargement{.times = static_cast<int>(times), .width = width, .noise = noise};
                    diffusion_task task{data, process, options};
                    const std::vector<float> noisy = values_of(plain, each, 30, 3);
                    const std::vector<float> x = values_of(task, 2 * each, 30, 3);
                    std::vector<float> image(3 * each);
                    data.batch(30, image);
                    const std::size_t rows = height / times;
                    const std::size_t columns = width / times;
                    std::vector<double> small(3 * rows * columns * channels);
                    for (std::size_t i = 0; i != image.size(); ++i) {
                        const std::size_t column = i / channels % width / times;
                        const std::size_t row = i / channels / width / times; // of all images together
                        small[(row * columns + column) * channels + i % channels] +=
                            static_cast<double>(image[i]) / static_cast<double>(times * times);
                    }
                    const random_source numbers{5, random_stream::enlargement};
                    for (std::size_t i = 0; i != small.size(); ++i) {
                        const std::uint64_t first = 30 * small.size() / 3;
                        small[i] += noise * static_cast<double>(numbers.normal(first + i));
                    }
                    for (std::size_t i = 0; i != noisy.size(); ++i) {
                        const std::size_t column = i / channels % width;
                        const std::size_t row = i / channels / width;
                        const std::size_t place = i / channels * 2 * channels + i % channels;
                        CHECK(x[place] == noisy[i]);
                        CHECK(static_cast<double>(x[place + channels]) ==
                              doctest::Approx(small[(row / times * columns + column / times) * channels + i % channels])
                                  .epsilon(1e-5)
                                  .scale(1));
                    }
                    // Requesting the last of these samples alone yields the same values.
                    options.microbatch_size = 1;
                    diffusion_task alone{data, process, options};
                    const std::vector<float> last = values_of(alone, 2 * each, 32, 1);
                    CHECK(std::equal(last.begin(), last.end(), x.end() - std::ptrdiff_t{2 * each}));

                    double loss = 0;
                    double plain_loss = 0;
                    const std::vector<float> answer(3 * each, 0.25F);
                    std::vector<float> gradient(answer.size());
                    std::vector<float> plain_gradient(answer.size());
                    task.loss(microbatch_of{0, &loss}, answer, gradient);
                    plain.loss(microbatch_of{0, &plain_loss}, answer, plain_gradient);
                    CHECK(loss == plain_loss);
                    CHECK(gradient == plain_gradient);
                }
            }
        }
    }
    // Samples smaller than the greatest still share no random numbers.
    const enlargement how{.times = 2, .width = 4};
    const diffusion_options larger{.greatest_elements = 18};
    const auto first_of = [&](std::uint64_t position) {
        return pulse::train::detail::small_noise_at(how, pulse::train::detail::noise_at(larger, position, 16));
    };
    for (std::uint64_t position = 0; position != 9; ++position) {
        CHECK(first_of(position + 1) - first_of(position) >= 4);
    }
}

TEST_CASE("images that cannot be enlarged are refused by name") {
    const image_dataset data{4, 6, 1, std::vector<std::uint8_t>(24), {}};
    const auto make = [&](const enlargement& how, std::int64_t read = 0, bool self_conditioned = false) {
        diffusion_task{
            data, rectified_flow{}, {.model_elements = read, .self_conditioned = self_conditioned, .enlarged = how}};
    };
    CHECK_NOTHROW(make({.times = 2, .width = 6, .noise = 0.5}, 48));
    CHECK_THROWS_WITH_AS(
        make({.times = 2, .width = 6}, 24),
        "diffusion_task: an image and the enlarged image have 48 elements, but the model's input has 24", input_error);
    CHECK_THROWS_WITH_AS(make({.times = 2, .width = 6}, 48, true),
                         "diffusion_task: self_conditioned and enlarged cannot be combined", input_error);
    for (const int times : {1, 0, -2}) {
        CHECK_THROWS_WITH_AS(make({.times = times, .width = 6}), "enlargement: times must be at least 2", input_error);
    }
    for (const double noise : {-0.1, std::numeric_limits<double>::quiet_NaN()}) {
        CHECK_THROWS_WITH_AS(make({.times = 2, .width = 6, .noise = noise}), "enlargement: noise must be at least 0",
                             input_error);
    }
    for (const int width : {0, -6}) {
        CHECK_THROWS_WITH_AS(make({.times = 2, .width = width}), "enlargement: width must be at least 1", input_error);
    }
    CHECK_THROWS_WITH_AS(make({.times = 2, .width = 5}),
                         "enlargement: an image of 24 pixels cannot be split into rows of width 5", input_error);
    CHECK_THROWS_WITH_AS(make({.times = 3, .width = 6}),
                         "enlargement: an image of 4x6 pixels cannot be split into 3x3 squares", input_error);
    CHECK_THROWS_WITH_AS(make({.times = 4, .width = 6}),
                         "enlargement: an image of 4x6 pixels cannot be split into 4x4 squares", input_error);
    CHECK_THROWS_WITH_AS(make({.times = 2, .width = 3}),
                         "enlargement: an image of 8x3 pixels cannot be split into 2x2 squares", input_error);
    // Samples of a step may differ in size from those of earlier steps.
    struct resized {
        std::size_t size{24};
        [[nodiscard]] std::size_t elements() const { return size; }
        [[nodiscard]] static int channels() { return 1; }
        static void batch(std::uint64_t, std::span<float> out) { std::ranges::fill(out, 0.0F); }
    } images_of_step;
    diffusion_task task{images_of_step, rectified_flow{}, {.enlarged = enlargement{.times = 2, .width = 6}}};
    images_of_step.size = 12;
    CHECK_NOTHROW(task.begin(0));
    images_of_step.size = 18;
    CHECK_THROWS_WITH_AS(task.begin(0), "enlargement: an image of 3x6 pixels cannot be split into 2x2 squares",
                         input_error);
}

TEST_CASE("offset noise is one more normal number for all of a channel, in the input and in what is predicted") {
    constexpr std::size_t channels = 2;
    constexpr std::size_t pixels = elements / channels;
    const image_dataset data{4, 2, channels, std::vector<std::uint8_t>(elements, 200), {}};
    const noise_schedule schedule = noise_schedule::cosine();
    struct drawn {
        std::vector<float> x, target;
        int time{};
    };
    const auto draw = [&](prediction_type type, double offset, std::uint64_t position) {
        diffusion_task task{data, schedule, {.seed = 5, .prediction = type, .noise_offset = offset}};
        task.begin(position);
        drawn result{std::vector<float>(elements), std::vector<float>(elements), 0};
        double loss = 0;
        const microbatch_of at{0, &loss};
        task.input(at, result.x);
        result.time = static_cast<int>(*task.timesteps(at));
        // the gradient at 0 is -2 / elements times the target
        task.loss(at, std::vector<float>(elements), result.target);
        for (float& value : result.target) { value *= -0.5F * elements; }
        return result;
    };
    double squares = 0;
    std::vector<double> seen;
    constexpr std::uint64_t samples = 400;
    for (std::uint64_t position = 0; position != samples; ++position) {
        for (const auto type : {prediction_type::epsilon, prediction_type::velocity, prediction_type::sample}) {
            const drawn plain = draw(type, 0, position);
            const drawn moved = draw(type, 0.1, position);
            const double of_target = type == prediction_type::epsilon    ? 1
                                     : type == prediction_type::velocity ? schedule.signal(plain.time)
                                                                         : 0;
            for (std::size_t c = 0; c != channels; ++c) {
                const auto added = [&](std::size_t pixel) {
                    return static_cast<double>(moved.x[pixel * channels + c] - plain.x[pixel * channels + c]) /
                           schedule.sigma(plain.time);
                };
                for (std::size_t pixel = 0; pixel != pixels; ++pixel) {
                    CHECK(added(pixel) == doctest::Approx(added(0)).epsilon(1e-4).scale(1));
                    CHECK(moved.target[pixel * channels + c] - plain.target[pixel * channels + c] ==
                          doctest::Approx(of_target * added(0)).epsilon(1e-4).scale(1));
                }
                if (type == prediction_type::sample) {
                    squares += std::pow(added(0) / 0.1, 2);
                    seen.push_back(added(0));
                }
            }
            CHECK(moved.x[0] - plain.x[0] != moved.x[1] - plain.x[1]);
        }
    }
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    CHECK(squares / (samples * channels) == doctest::Approx(1).epsilon(0.2));
}

} // namespace diffusion_tests
