#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pulse/cuda/device_latents.cuh>
#include <pulse/cuda/diffusion_task.cuh>
#include <pulse/runtime/parameters.hpp>
#include <pulse/train/diffusion_task.hpp>
#include <pulse/train/latent_task.hpp>

#include <device_array.hpp>
#include <diffusion_trial.hpp>

namespace cuda = pulse::cuda;
namespace train = pulse::train;
using pulse::test::device_array;
using pulse::test::rounding_error;
using namespace pulse::test::diffusion_trial;

TEST_CASE_TEMPLATE("a device's step has the host's samples, times, losses and gradients", Precision, cuda::bf16,
                   cuda::fp16, cuda::tf32, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const double scale = Precision::scales_loss ? 4096 : 1;
    struct objective {
        train::noise_process schedule;
        train::prediction_type type;
    };
    const auto linear = train::noise_schedule::linear();
    const objective objectives[] = {{linear, train::prediction_type::epsilon},
                                    {linear, train::prediction_type::velocity},
                                    {linear.with_zero_terminal_snr(), train::prediction_type::velocity},
                                    {linear, train::prediction_type::sample},
                                    {train::rectified_flow{.shift = 3}, train::prediction_type::velocity},
                                    {train::edm_noise{}, train::prediction_type::velocity}};
    for (const auto& [schedule, type] : objectives) {
        // EDM's factors are up to 1 / sigma_data.
        const double stretch = schedule.betas() != nullptr ? 1 : 2;
        for (const double gamma : {0.0, 5.0}) {
            if (gamma > 0 && schedule.betas() == nullptr) { continue; }
            const train::image_dataset data = images(6, 4, 1);
            const train::diffusion_options step{.seed = 5,
                                                .prediction = type,
                                                .min_snr_gamma = gamma,
                                                .noise_offset = gamma / 50,
                                                .microbatch_size = 3,
                                                .microbatches = 2,
                                                .model_elements = 8 * 8 * 4};
            const double answer = 0.25;
            const task_step want = host_step(data, schedule, step, 1000, answer);
            const task_step found = device_step<Precision>(data, schedule, step, 1000, answer, scale);
            CHECK(found.times == want.times);
            REQUIRE(found.x.size() == want.x.size());
            // error of the noise transform, and of mixing both sides with three float roundings
            const double slack = stretch * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
            for (std::size_t i = 0; i < want.x.size(); ++i) {
                CHECK(std::abs(found.x[i] - want.x[i]) <=
                      slack + rounding_error<scalar> * std::abs(want.x[i]) + half_step);
                const double slope = scale * want.gradient[i];
                const double factor = std::abs(want.gradient[i]) * scale / 1.0;
                // the gradient is 2 weight / elements times the difference, whose error is `slack`; min-SNR weights are
                // at most 1, or gamma when the sample is predicted
                const double weight = type == train::prediction_type::sample ? std::max(1.0, gamma) : 1.0;
                const double per_unit = 2.0 * weight * scale / static_cast<double>(want.x.size());
                CHECK(std::abs(found.gradient[i] - slope) <=
                      per_unit * slack + (rounding_error<scalar> + 0x1p-22) * factor + half_step);
            }
            for (std::size_t m = 0; m < want.losses.size(); ++m) {
                CHECK(found.losses[m] == doctest::Approx(want.losses[m]).epsilon(4 * slack));
            }
        }
    }
}

TEST_CASE_TEMPLATE("errors count on a device as on the host, by the mask of their pixel", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(6, 4, 1);
    const train::noise_schedule schedule = train::noise_schedule::cosine();
    const train::diffusion_options step{.seed = 5, .microbatch_size = 3, .microbatches = 2};
    const auto device = [&](const train::mask_source& masks) {
        return device_step<Precision>(data, schedule, step, 1000, 0.25, 64, masks);
    };
    const train::mask_source some = [](std::uint64_t position, std::span<float> to) {
        REQUIRE(to.size() == 8 * 8);
        for (std::size_t i = 0; i != to.size(); ++i) { to[i] = static_cast<float>((position * 5 + i * 3) % 8) / 7; }
    };
    const task_step want = host_step(data, schedule, step, 1000, 0.25, some);
    const task_step found = device(some);
    const double slack = 6.8 * 0x1p-20 + 6 * 0x1p-23 * 8; // as without masks: masks are at most 1
    const double per_unit = 2.0 * 64 / static_cast<double>(want.gradient.size());
    for (std::size_t i = 0; i != want.gradient.size(); ++i) {
        const double slope = 64 * want.gradient[i];
        CHECK(std::abs(found.gradient[i] - slope) <=
              per_unit * slack + (rounding_error<scalar> + 0x1p-22) * std::abs(slope) + half_step);
    }
    for (std::size_t m = 0; m != want.losses.size(); ++m) {
        CHECK(found.losses[m] == doctest::Approx(want.losses[m]).epsilon(4 * slack));
    }
    const auto everywhere = [](float value) {
        return [value](std::uint64_t, std::span<float> to) { std::ranges::fill(to, value); };
    };
    const task_step whole = device(everywhere(1));
    const task_step without = device({});
    CHECK(whole.losses == without.losses);
    CHECK(whole.gradient == without.gradient);
    CHECK(whole.losses != found.losses);
    const task_step nothing = device(everywhere(0));
    CHECK(nothing.losses == std::vector<double>(2));
    CHECK(nothing.gradient == std::vector<double>(found.gradient.size()));
}

TEST_CASE_TEMPLATE("what a self-conditioned model reads on a device is the host's", Precision, cuda::bf16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(6, 4, 1);
    const train::noise_process processes[]{train::noise_schedule::cosine(), train::rectified_flow{}};
    for (const train::noise_process& process : processes) {
        for (const std::size_t answered : {4, 5}) {
            const train::diffusion_options step{
                .seed = 5, .noise_offset = 0.1, .microbatch_size = 3, .self_conditioned = true};
            train::diffusion_task want(data, process, step);
            const cuda::device_images there(data);
            const cuda::stream stream;
            cuda::diffusion_task<Precision> found(there, process, step, stream.get());
            want.begin(70);
            found.begin(70);
            const std::size_t n = 3 * data.elements();
            std::vector<double> answer(n / 4 * answered);
            for (std::size_t i = 0; i != answer.size(); ++i) { answer[i] = 0.125 * static_cast<double>(i % 13) - 0.75; }
            const std::vector<float> answer_there(answer.begin(), answer.end());
            const device_array<scalar> y(answer);
            const microbatch_of at{0, nullptr};
            for (const bool previewed : {false, true}) {
                std::vector<float> x(2 * n);
                const device_array<scalar> x_there(2 * n);
                if (previewed) {
                    want.input(at, x, answer_there);
                    found.input(at, std::span{x_there.data(), 2 * n}, std::span<const scalar>{y.data(), answer.size()});
                } else {
                    want.input(at, x);
                    found.input(at, std::span{x_there.data(), 2 * n});
                }
                const std::vector<double> mine = x_there.download(stream.get());
                const double slack = 4 * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
                for (std::size_t i = 0; i != x.size(); ++i) {
                    const auto there_is = static_cast<double>(x[i]);
                    CHECK(std::abs(mine[i] - there_is) <= slack + rounding_error<scalar> * std::abs(there_is));
                }
            }
        }
    }
}

TEST_CASE_TEMPLATE("what the second backbone of a cascade reads on a device is the host's", Precision, cuda::bf16,
                   cuda::fp16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const auto same = [](auto& want, auto& found, cudaStream_t stream, std::size_t elements, double noise) {
        std::vector<float> x(elements);
        const device_array<scalar> x_there(elements);
        const microbatch_of at{1, nullptr};
        want.input(at, x);
        found.input(at, std::span{x_there.data(), elements});
        const std::vector<double> mine = x_there.download(stream);
        const double slack = (1 + noise) * (6.8 * 0x1p-20 + 6 * 0x1p-23 * 8);
        for (std::size_t i = 0; i != x.size(); ++i) {
            const auto there_is = static_cast<double>(x[i]);
            CHECK(std::abs(mine[i] - there_is) <= slack + rounding_error<scalar> * std::abs(there_is) + half_step);
        }
    };
    // bytes with padding, some of them mirrored; then floats of two sizes, as an autoencoder produces them
    const train::image_dataset data = images(10, 3, 1);
    const std::size_t n = data.elements();
    constexpr std::uint64_t far = 5'000'000'000;
    for (const int times : {2, 3}) {
        for (const double noise : {0.0, 0.5, 20.0}) {
            train::diffusion_options step{.seed = 5, .noise_offset = 0.1, .microbatch_size = 3, .microbatches = 2};
            step.model_elements = static_cast<std::int64_t>(2 * n);
            step.enlarged = train::enlargement{.times = times, .width = 12, .noise = noise};
            if (noise == 0.5) { step.evaluated = train::evaluation{.timestep = 300, .samples = 1000}; }
            const cuda::stream stream;
            const auto schedule = train::noise_schedule::cosine();
            train::diffusion_task want(data, schedule, step);
            const cuda::device_images there(data);
            cuda::diffusion_task<Precision> found(there, schedule, step, stream.get());
            want.begin(far);
            found.begin(far);
            same(want, found, stream.get(), 3 * 2 * n, noise);

            step.greatest_elements = static_cast<std::int64_t>(n) + 7;
            train::latents_of_step latents(6, n, 3);
            cuda::device_latents latents_there(6, n, 3);
            train::diffusion_task want_latents(latents, schedule, step);
            cuda::diffusion_task<Precision, cuda::device_latents> found_latents(latents_there, schedule, step,
                                                                                stream.get());
            for (const std::size_t size : {n, n / 2}) { // 12x12 and 6x12
                latents.resize(size);
                latents_there.resize(size);
                latents.begin(far);
                latents_there.begin(far);
                for (std::size_t k = 0; k != 6; ++k) {
                    train::random_source{k, 1}.fill_normal(0, latents.of(k));
                    std::ranges::copy(latents.of(k), latents_there.of(k).begin());
                }
                latents_there.upload(stream.get());
                want_latents.begin(far);
                found_latents.begin(far);
                same(want_latents, found_latents, stream.get(), 3 * 2 * size, noise);
            }
            latents_there.resize(n / 12); // a single row
            CHECK_THROWS_AS(found_latents.begin(far), pulse::input_error);
        }
    }
}

TEST_CASE_TEMPLATE("samples smaller than the greatest have the host's noise on a device", Precision, cuda::bf16,
                   cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(6, 4, 1);
    const auto schedule = train::noise_schedule::cosine();
    for (const std::int64_t more : {0, 1, 2, 3, 8}) {
        const train::diffusion_options step{.seed = 5, .microbatch_size = 3, .greatest_elements = 8 * 8 * 4 + more};
        const task_step want = host_step(data, schedule, step, 1001, 0.25);
        const task_step found = device_step<Precision>(data, schedule, step, 1001, 0.25);
        const double slack = 6.8 * 0x1p-20 + 6 * 0x1p-23 * 8;
        const double per_unit = 2.0 / static_cast<double>(want.x.size());
        REQUIRE(found.x.size() == want.x.size());
        for (std::size_t i = 0; i != want.x.size(); ++i) {
            CHECK(std::abs(found.x[i] - want.x[i]) <= slack + rounding_error<scalar> * std::abs(want.x[i]));
            CHECK(std::abs(found.gradient[i] - want.gradient[i]) <=
                  per_unit * slack + (rounding_error<scalar> + 0x1p-22) * std::abs(want.gradient[i]));
        }
    }
}

TEST_CASE_TEMPLATE("a device's task gives the host's texts, facts and hints of samples, as scalars of the device",
                   Precision, cuda::bf16, cuda::fp32) {
    using scalar = typename Precision::scalar;
    const train::image_dataset data = images(4, 2, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    pulse::condition_set wanted;
    wanted.add({pulse::condition_kind::text_states, 3, 5});
    wanted.add({pulse::condition_kind::pooled_text, 1, 2});
    wanted.add({pulse::condition_kind::original_crop_target, 1, 6});
    constexpr std::size_t hint = 7;
    const train::condition_source source{wanted,
                                         [](std::uint64_t position, std::size_t which, std::span<float> to) {
                                             train::random_source{position, which}.fill_normal(0, to);
                                         },
                                         hint,
                                         [](std::uint64_t position, std::span<float> to) {
                                             train::random_source{position, 9}.fill_normal(0, to);
                                         }};
    const train::diffusion_options step{
        .seed = 5, .microbatch_size = 2, .microbatches = 2, .replicas = 2, .replica = 1};
    train::diffusion_task want(data, schedule, step, source);
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<Precision> found(there, schedule, step, stream.get(), source);
    for (const std::uint64_t position : {500, 10}) {
        want.begin(position);
        found.begin(position, 1);
        stream.synchronize();
        for (int m = 0; m != 2; ++m) {
            const microbatch_of at{m, nullptr};
            std::vector<scalar> text(2 * static_cast<std::size_t>(wanted.text_elements()));
            std::vector<float> facts(2 * static_cast<std::size_t>(wanted.fact_elements()));
            cuda::download<scalar>(found.text(at), text.data(), text.size());
            cuda::download<float>(found.facts(at), facts.data(), facts.size());
            for (std::size_t i = 0; i < text.size(); ++i) {
                CHECK(cuda::to_float(text[i]) == cuda::to_float(cuda::from_float<scalar>(want.text(at)[i])));
            }
            CHECK(facts == std::vector<float>(want.facts(at), want.facts(at) + facts.size()));
            const std::size_t n = 2 * data.elements();
            std::vector<float> x(n + 2 * hint);
            want.input(at, x);
            const device_array<scalar> x_there(x.size());
            found.input(at, std::span{x_there.data(), x.size()});
            const std::vector<double> mine = x_there.download(stream.get());
            for (std::size_t i = n; i != x.size(); ++i) {
                CHECK(mine[i] == static_cast<double>(cuda::to_float(cuda::from_float<scalar>(x[i]))));
            }
        }
    }
}

TEST_CASE("a device's step does not depend on how samples are grouped into microbatches") {
    const train::image_dataset data = images(5, 3, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const auto run = [&](int batch, int microbatches) {
        task_step all = device_step<cuda::fp32>(
            data, schedule, {.seed = 5, .microbatch_size = batch, .microbatches = microbatches}, 77, 0.5);
        all.losses = {std::accumulate(all.losses.begin(), all.losses.end(), 0.0)};
        return all;
    };
    const task_step want = run(12, 1);
    for (const auto& [batch, microbatches] : {std::pair{1, 12}, {4, 3}}) {
        const task_step found = run(batch, microbatches);
        CHECK(found.x == want.x);
        CHECK(found.times == want.times);
        CHECK(found.gradient == want.gradient);
        CHECK(found.losses[0] == doctest::Approx(want.losses[0]).epsilon(1e-14));
    }
}

TEST_CASE("a step may be begun while the device has still to start the step before") {
    const train::image_dataset data = images(4, 1, 0);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const cuda::device_images there(data);
    const cuda::stream stream;
    cuda::diffusion_task<cuda::fp32> task(there, schedule, {}, stream.get());
    const device_array<float> first(data.elements());
    const device_array<float> second(data.elements());
    const device_array<float> alone(data.elements());
    const auto give = [&](const device_array<float>& to) {
        task.input(microbatch_of{}, std::span{to.data(), data.elements()});
    };
    task.begin(5);
    give(first);
    task.begin(6);
    give(second);
    stream.synchronize();
    task.begin(5);
    give(alone);
    const std::vector<double> expected = alone.download(stream.get());
    CHECK(first.download(stream.get()) == expected);
    CHECK(second.download(stream.get()) != expected);
}

TEST_CASE("a device's task for a model of another size, or without samples, is refused by name") {
    const train::image_dataset data = images(4, 1, 0);
    const cuda::device_images there(data);
    const train::noise_schedule schedule = train::noise_schedule::linear();
    const auto make = [&](const train::diffusion_options& o) {
        const cuda::diffusion_task<> task(there, schedule, o, nullptr);
    };
    CHECK_NOTHROW(make({.model_elements = 16}));
    CHECK_THROWS_WITH_AS(make({.model_elements = 64}),
                         "diffusion_task: an image has 16 elements, but the model's input has 64", pulse::input_error);
    CHECK_THROWS_WITH_AS(make({.microbatch_size = 0}), "diffusion_task: microbatch_size must be from 1 to 65535, not 0",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS(make({.microbatches = -1}), "diffusion_task: microbatches must be at least 1",
                         pulse::input_error);
    CHECK_THROWS_AS(make({.min_snr_gamma = -1.0}), pulse::input_error);
    CHECK_THROWS_AS(make({.noise_offset = -1.0}), pulse::input_error);
    const auto zero = schedule.with_zero_terminal_snr();
    CHECK_THROWS_AS((cuda::diffusion_task<>{there, zero, {.prediction = train::prediction_type::epsilon}, nullptr}),
                    pulse::input_error);
}
