#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>

#include <pulse/train/draw_images.hpp>

#include <io/scratch.hpp>
#include <support/skip.hpp>

namespace {

using namespace pulse::train;

constexpr std::size_t picture_size = 48;
/// For images of every step: diffusers computes its tables in float, which leaves 5 digits of betas near 1.
constexpr double least_psnr = 95;

struct sampling_case {
    scheduler_settings settings;
    sampler_kind kind;
    int steps;
};

std::vector<sampling_case> sampling_cases() {
    const scheduler_settings linear{};
    const scheduler_settings latent{.betas = beta_shape::scaled_linear,
                                    .beta_start = 0.00085,
                                    .beta_end = 0.012,
                                    .steps_offset = 1,
                                    .set_alpha_to_one = false,
                                    .clip_sample = false};
    const scheduler_settings cosine{.betas = beta_shape::squared_cosine, .clip_sample_range = 0.8};
    std::vector<sampling_case> cases;
    for (const auto& base : {linear, latent, cosine}) {
        for (const auto type : {prediction_type::epsilon, prediction_type::velocity, prediction_type::sample}) {
            for (const auto spacing :
                 {timestep_spacing::leading, timestep_spacing::trailing, timestep_spacing::linspace}) {
                for (const bool zero : {false, true}) {
                    if (zero && type == prediction_type::epsilon) { continue; }
                    scheduler_settings settings = base;
                    settings.prediction = type;
                    settings.spacing = spacing;
                    settings.zero_terminal_snr = zero;
                    for (const auto kind : {sampler_kind::ddim, sampler_kind::dpm_solver}) {
                        for (const int steps : {7, 30}) { cases.push_back({settings, kind, steps}); }
                    }
                }
            }
        }
    }
    return cases;
}

/// One line of JSON for schedulers_diffusers.py.
std::string line_of(const sampling_case& one) {
    constexpr const char* betas[]{"linear", "scaled_linear", "squaredcos_cap_v2"};
    constexpr const char* predictions[]{"epsilon", "v_prediction", "sample"};
    constexpr const char* spacings[]{"leading", "trailing", "linspace"};
    const scheduler_settings& s = one.settings;
    const bool ddim = one.kind == sampler_kind::ddim;
    const auto yes_or_no = [](bool value) { return value ? "true" : "false"; };
    std::string line =
        std::string{R"({"class": ")"} + (ddim ? "DDIMScheduler" : "DPMSolverMultistepScheduler") + R"(", "steps": )" +
        std::to_string(one.steps) + R"(, "config": {"beta_schedule": ")" + betas[static_cast<int>(s.betas)] +
        R"(", "beta_start": )" + std::to_string(s.beta_start) + R"(, "beta_end": )" + std::to_string(s.beta_end) +
        R"(, "rescale_betas_zero_snr": )" + yes_or_no(s.zero_terminal_snr) + R"(, "prediction_type": ")" +
        predictions[static_cast<int>(s.prediction)] + R"(", "timestep_spacing": ")" +
        spacings[static_cast<int>(s.spacing)] + R"(", "steps_offset": )" + std::to_string(s.steps_offset);
    if (ddim) {
        line += std::string{R"(, "set_alpha_to_one": )"} + yes_or_no(s.set_alpha_to_one) + R"(, "clip_sample": )" +
                yes_or_no(s.clip_sample) + R"(, "clip_sample_range": )" + std::to_string(s.clip_sample_range);
    }
    return line + "}}\n";
}

void network(std::span<const float> x, std::span<const float> times, std::span<float> answer) {
    for (std::size_t i = 0; i != x.size(); ++i) {
        const auto t = static_cast<float>(0.01 * times[0]);
        answer[i] = 0.7F * std::tanh(x[i]) + 0.2F * std::sin(3.0F * x[i] + t);
    }
}

/// Reads a file of floats piece by piece.
struct reader {
    std::ifstream file;

    std::vector<float> next(std::size_t count) {
        std::vector<float> values(count);
        file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(4 * count));
        REQUIRE(file.gcount() == static_cast<std::streamsize>(4 * count));
        return values;
    }
};

/// Peak signal-to-noise ratio in dB; the peak is the largest magnitude of `other`.
double psnr(std::span<const float> one, std::span<const float> other) {
    double peak = 0;
    double squares = 0;
    for (std::size_t i = 0; i != one.size(); ++i) {
        peak = std::max(peak, static_cast<double>(std::abs(other[i])));
        squares += std::pow(static_cast<double>(one[i] - other[i]), 2);
    }
    return 10 * std::log10(peak * peak * static_cast<double>(one.size()) / (squares + 1e-30));
}

double difference(std::span<const float> one, std::span<const float> other) {
    double worst = 0;
    for (std::size_t i = 0; i != one.size(); ++i) {
        worst = std::max(worst, static_cast<double>(std::abs(one[i] - other[i])));
    }
    return worst;
}

/// Output of schedulers_diffusers.py for the cases with that noise and image; empty without diffusers.
std::optional<reader> by_diffusers(const pulse::test::scratch& folder, const std::string& lines, const char* packages,
                                   std::span<const float> noise, std::span<const float> image) {
    {
        std::ofstream{folder.path / "cases"} << lines;
        std::ofstream start{folder.path / "start", std::ios::binary};
        for (const auto& values : {noise, image}) {
            start.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(4 * picture_size));
        }
    }
    const std::string command =
        "'" PULSE_TEST_PYTHON "' '" PULSE_TEST_SCHEDULERS_SCRIPT "' '" + folder.path.string() + "' '" + packages + "'";
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        pulse::test::skip("no python3 with torch and diffusers");
        return {};
    }
    REQUIRE(WEXITSTATUS(status) == 0);
    return reader{std::ifstream{folder.path / "out", std::ios::binary}};
}
std::vector<float> drawn(random_stream stream) {
    std::vector<float> values(picture_size);
    random_source{0, stream}.fill_normal(0, values);
    return values;
}

/// A network that checks its input against what diffusers passed to it.
auto watched(reader& expected, double time_error) {
    return [&expected, time_error](std::span<const float> x, std::span<const float> times, std::span<float> answer) {
        CHECK(std::abs(times[0] - expected.next(1)[0]) <= time_error);
        CHECK(psnr(x, expected.next(picture_size)) > least_psnr);
        network(x, times, answer);
    };
}

} // namespace

TEST_CASE("noise, targets and samplers equal diffusers' schedulers") {
    const pulse::test::scratch folder{};
    const auto cases = sampling_cases();
    const std::vector<float> noise = drawn(random_stream::sample_start);
    const std::vector<float> image = drawn(random_stream::synthetic_images);
    std::string lines;
    for (const auto& one : cases) { lines += line_of(one); }
    auto found = by_diffusers(folder, lines, PULSE_TEST_PYTHON_PACKAGES, noise, image);
    if (!found) { return; }
    reader& expected = *found;
    for (const auto& one : cases) {
        CAPTURE(line_of(one));
        const noise_schedule schedule = schedule_of(one.settings);
        const auto bars = expected.next(1000);
        double worst = 0;
        for (int t = 0; t != 1000; ++t) {
            worst = std::max(
                worst, std::abs(schedule.alpha_cumprod(t) - static_cast<double>(bars[static_cast<std::size_t>(t)])));
        }
        CHECK(worst < 1e-5);
        std::vector<float> made(picture_size);
        for (const int t : {0, 1, 400, 998, 999}) {
            add_noise<float>(schedule.at(t, prediction_type::epsilon), image, noise, made);
            CHECK(difference(made, expected.next(picture_size)) < 1e-5);
            training_target<float>(schedule.at(t, prediction_type::velocity), image, noise, made);
            CHECK(difference(made, expected.next(picture_size)) < 1e-5);
        }
        draw_images(one.settings, {.kind = one.kind, .steps = one.steps}, 1, made, watched(expected, 0));
        CHECK(psnr(made, expected.next(picture_size)) > least_psnr);
    }
    CHECK(expected.file.peek() == std::ifstream::traits_type::eof());
}

TEST_CASE("flow and EDM equal diffusers' schedulers") {
    const pulse::test::scratch folder{};
    const std::vector<float> noise = drawn(random_stream::sample_start);
    const std::vector<float> image = drawn(random_stream::synthetic_images);
    struct other_case {
        scheduler_settings settings{};
        int steps{};
        std::int64_t pixels{};
        std::string line{};
    };
    std::vector<other_case> cases;
    for (const int steps : {1, 7, 30}) {
        const std::string of_steps = R"(", "steps": )" + std::to_string(steps);
        for (const double shift : {1.0, 3.0}) {
            cases.push_back({{.flow = rectified_flow{.shift = shift}},
                             steps,
                             0,
                             R"({"class": "FlowMatchEulerDiscreteScheduler)" + of_steps + R"(, "config": {"shift": )" +
                                 std::to_string(shift) + "}}\n"});
        }
        for (const std::int64_t pixels : {1024, 16384, 65536}) {
            // as in calculate_shift() of the pipelines
            const double mu = 0.5 + (1.15 - 0.5) / (4096 - 256) * (static_cast<double>(pixels) / 4 - 256);
            cases.push_back({{.flow = rectified_flow{.shift = 3, .by_size = true}},
                             steps,
                             pixels,
                             R"({"class": "FlowMatchEulerDiscreteScheduler)" + of_steps + R"(, "steps_by": {"mu": )" +
                                 std::to_string(mu) + R"(}, "config": {"shift": 3, "use_dynamic_shifting": true}})" +
                                 "\n"});
        }
        for (const double data : {0.5, 1.0}) {
            for (const bool velocity : {false, true}) {
                cases.push_back({{.edm = edm_noise{.sigma_max = 40, .sigma_data = data, .velocity = velocity}},
                                 steps,
                                 0,
                                 R"({"class": "EDMEulerScheduler)" + of_steps +
                                     R"(, "config": {"sigma_max": 40, "sigma_data": )" + std::to_string(data) +
                                     R"(, "prediction_type": ")" + (velocity ? "v_prediction" : "epsilon") + "\"}}\n"});
            }
        }
    }
    std::string lines;
    for (const auto& one : cases) { lines += one.line; }
    auto found = by_diffusers(folder, lines, PULSE_TEST_PYTHON_NEWEST_PACKAGES, noise, image);
    if (!found) { return; }
    reader& expected = *found;
    for (const auto& one : cases) {
        CAPTURE(one.line);
        const noise_process process = process_of(one.settings);
        CHECK(process.steps() == 1000);
        std::vector<float> made(picture_size);
        for (const int t : {0, 1, 400, 998, 999}) {
            CAPTURE(t);
            // The scheduler shifts by size only when it samples.
            rectified_flow unshifted{};
            const noise_level level = one.pixels != 0 ? unshifted.at(t, 0) : process.at(t, prediction_type::epsilon, 0);
            CHECK(level.time == doctest::Approx(static_cast<double>(expected.next(1)[0])).epsilon(1e-5));
            add_noise<float>(level, image, noise, made);
            CHECK(difference(made, expected.next(picture_size)) < 2e-5);
            training_target<float>(level, image, noise, made);
            const auto wanted = expected.next(picture_size);
            CHECK(psnr(made, wanted) > least_psnr);
            std::vector<float> x0(picture_size);
            std::vector<float> eps(picture_size);
            std::vector<float> x(picture_size);
            add_noise<float>(level, image, noise, x);
            read_answer<float>(level, x, made, x0, eps);
            CHECK(psnr(x0, image) > 60); // at the ends next to nothing of one of the two is left
            CHECK(psnr(eps, noise) > 60);
        }
        draw_images(one.settings, {.steps = one.steps, .pixels = one.pixels}, 1, made, watched(expected, 2e-4));
        CHECK(psnr(made, expected.next(picture_size)) > least_psnr);
    }
    CHECK(expected.file.peek() == std::ifstream::traits_type::eof());
}
