#include <pulse/hardware/link_fit.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../support/check_both.hpp"

using pulse::fit_link;
using pulse::link_fit;
using pulse::link_sample;

namespace {

/// Messages of 8 B to 1 GiB, each twice the one before, over a link.
std::vector<link_sample> measured(const pulse::link& over) {
    std::vector<link_sample> samples;
    for (std::int64_t bytes = 8; bytes <= std::int64_t{1} << 30; bytes *= 2) {
        samples.push_back({bytes, over.transfer_us(bytes)});
    }
    return samples;
}

/// Of any magnitude that links have: 0.2 us to 200 us, 0.1 GB/s to 10 TB/s.
pulse::link random_link(std::mt19937& random) {
    std::uniform_real_distribution<double> uniform{0.0, 1.0};
    return {.latency_us = 0.2 * std::pow(10.0, 3 * uniform(random)),
            .bandwidth_gb_per_s = 0.1 * std::pow(10.0, 5 * uniform(random))};
}

/// The mean relative error, summed in another way than the fit does.
double mean_error(const std::vector<link_sample>& samples, const pulse::link& line) {
    double sum = 0.0;
    for (const link_sample& s : samples) { sum += std::abs(line.transfer_us(s.bytes) - s.us) / s.us; }
    return sum / static_cast<double>(samples.size());
}

void check_near(const pulse::link& found, const pulse::link& wanted, double relative) {
    CHECK(found.latency_us == doctest::Approx(wanted.latency_us).epsilon(relative));
    CHECK(found.bandwidth_gb_per_s == doctest::Approx(wanted.bandwidth_gb_per_s).epsilon(relative));
}

std::string refusal(const std::vector<link_sample>& samples) {
    try {
        static_cast<void>(fit_link(samples));
    } catch (const pulse::input_error& e) { return e.what(); }
    return "accepted";
}

constexpr std::array line_of_five{link_sample{0, 5.0}, link_sample{2000, 6.0}, link_sample{10'000, 10.0},
                                  link_sample{20'000, 99.0}, link_sample{30'000, 20.0}};

} // namespace

TEST_CASE("samples of one line give that line, and one that is off it changes nothing") {
    CHECK_BOTH(fit_link(line_of_five).line == pulse::link{.latency_us = 5.0, .bandwidth_gb_per_s = 2.0});
    CHECK_BOTH(fit_link(line_of_five).worst_bytes == 20'000);
    CHECK(fit_link(line_of_five).worst_error == doctest::Approx(84.0 / 99.0));
    CHECK(fit_link(line_of_five).mean_error == doctest::Approx(84.0 / 99.0 / 5.0));
    std::mt19937 random{5};
    for (int repeat = 0; repeat != 50; ++repeat) {
        pulse::link truth = random_link(random);
        if (repeat % 5 == 0) { truth.latency_us = 0.0; }
        const link_fit found = fit_link(measured(truth));
        check_near(found.line, truth, 1e-6);
        CHECK(found.worst_error < 1e-6);
    }
}

TEST_CASE("latency and bandwidth are found through noise") {
    std::mt19937 random{7};
    for (int repeat = 0; repeat != 50; ++repeat) {
        const pulse::link truth = random_link(random);
        std::vector<link_sample> samples = measured(truth);
        for (link_sample& s : samples) { s.us *= std::uniform_real_distribution<double>{0.95, 1.05}(random); }
        const link_fit found = fit_link(samples);
        check_near(found.line, truth, 0.05); // no sample is further off
        CHECK(found.worst_error < 0.12);
        CHECK(found.mean_error == doctest::Approx(mean_error(samples, found.line)));
    }
}

TEST_CASE("a switch of protocol in the middle moves neither end of the line") {
    // Messages of some sizes are copied through buffers, larger ones begin with a handshake; most sizes feel neither.
    std::mt19937 random{9};
    for (int repeat = 0; repeat != 50; ++repeat) {
        const pulse::link truth{.latency_us = std::uniform_real_distribution<double>{1.0, 5.0}(random),
                                .bandwidth_gb_per_s = std::uniform_real_distribution<double>{5.0, 50.0}(random)};
        const double handshake_us = 2.0 * truth.latency_us;
        std::vector<link_sample> samples = measured(truth);
        for (link_sample& s : samples) {
            if (s.bytes >= 4096 && s.bytes < 65536) { s.us *= 2.5; }
            if (s.bytes >= 65536) { s.us += handshake_us; }
            s.us *= std::uniform_real_distribution<double>{0.99, 1.01}(random);
        }
        const link_fit found = fit_link(samples);
        check_near(found.line, truth, 0.05);
        CHECK(found.worst_error > 0.3); // and it says so
        CHECK(found.worst_bytes >= 4096);
        CHECK(found.worst_bytes < (std::int64_t{1} << 22));
    }
}

TEST_CASE("no line near or far has a smaller error, whatever the samples") {
    std::mt19937 random{11};
    std::uniform_real_distribution<double> uniform{0.0, 1.0};
    for (int repeat = 0; repeat != 40; ++repeat) {
        std::vector<link_sample> samples;
        const int count = 2 + static_cast<int>(random() % 12U);
        for (int i = 0; i != count; ++i) {
            const auto bytes = static_cast<std::int64_t>(random() % 20U) * 1000;
            samples.push_back(
                {bytes, 1.0 + static_cast<double>(bytes) * 1e-3 * uniform(random) + 3.0 * uniform(random)});
        }
        link_fit found{};
        try {
            found = fit_link(samples);
        } catch (const pulse::input_error&) { continue; } // one size, or times that fall
        const double least = mean_error(samples, found.line);
        CHECK(found.mean_error == doctest::Approx(least));
        for (int other = 0; other != 500; ++other) {
            const double step = std::pow(10.0, -4 * uniform(random));
            const pulse::link line{
                .latency_us = found.line.latency_us * (1 + step * (uniform(random) - 0.5)) + step * uniform(random),
                .bandwidth_gb_per_s = found.line.bandwidth_gb_per_s * (1 + step * (uniform(random) - 0.5))};
            CHECK(mean_error(samples, line) >= least * (1 - 1e-12));
        }
    }
}

TEST_CASE("what no line can be fitted to is named") {
    CHECK(refusal({}) == "link samples: messages of two sizes at least are needed");
    CHECK(refusal({{8, 1.0}, {8, 2.0}}) == "link samples: messages of two sizes at least are needed");
    CHECK(refusal({{8, 1.0}, {-1, 2.0}}) == "link samples: a message of -1 bytes");
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
        CHECK(refusal({{8, 1.0}, {16, bad}}) == "link samples: the time of 16 bytes must be finite and positive");
    }
    CHECK(refusal({{8, 1.0}, {16, 1.0}, {32, 1.0}}) == "link samples: their times do not grow with the bytes");
    CHECK(refusal({{8, 3.0}, {16, 2.0}, {32, 1.0}}) == "link samples: their times do not grow with the bytes");
    CHECK(refusal({{8, 1.0}, {16, 2.0}}) == "accepted");
}
