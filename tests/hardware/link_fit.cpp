#include <pulse/hardware/link_fit.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using pulse::fit_link;
using pulse::link_fit;
using pulse::link_sample;

namespace {

/// Messages of 8 B to 1 GiB over a link, each twice the one before.
std::vector<link_sample> measured(const pulse::link& over) {
    std::vector<link_sample> samples;
    for (std::int64_t bytes = 8; bytes <= std::int64_t{1} << 30; bytes *= 2) {
        samples.push_back({bytes, over.transfer_us(bytes)});
    }
    return samples;
}

/// A random link of any plausible magnitude: 0.2 us to 200 us, 0.1 GB/s to 10 TB/s.
pulse::link random_link(std::mt19937& random) {
    std::uniform_real_distribution<double> uniform{0.0, 1.0};
    return {.latency_us = 0.2 * std::pow(10.0, 3 * uniform(random)),
            .bandwidth_gb_per_s = 0.1 * std::pow(10.0, 5 * uniform(random))};
}

/// The factor by which a sample differs from the line.
double factor_of(const link_sample& s, const pulse::link& line) {
    const double us = line.transfer_us(s.bytes);
    return us > s.us ? us / s.us : s.us / us;
}

/// The mean of the factors, computed differently from the fit.
double mean_factor(const std::vector<link_sample>& samples, const pulse::link& line) {
    double product = 1.0;
    for (const link_sample& s : samples) { product *= factor_of(s, line); }
    return std::pow(product, 1.0 / static_cast<double>(samples.size()));
}

void check_near(const pulse::link& found, const pulse::link& wanted, double relative) {
    CHECK(found.latency_us == doctest::Approx(wanted.latency_us).epsilon(relative));
    CHECK(found.bandwidth_gb_per_s == doctest::Approx(wanted.bandwidth_gb_per_s).epsilon(relative));
}

std::string why_not(const std::vector<link_sample>& samples) {
    try {
        static_cast<void>(fit_link(samples));
    } catch (const pulse::input_error& e) { return e.what(); }
    return "accepted";
}

} // namespace

TEST_CASE("samples of one line give that line, and one that is off it changes nothing") {
    const std::vector<link_sample> of_five{{0, 5.0}, {2000, 6.0}, {10'000, 10.0}, {20'000, 60.0}, {30'000, 20.0}};
    const link_fit one_off = fit_link(of_five);
    check_near(one_off.line, {.latency_us = 5.0, .bandwidth_gb_per_s = 2.0}, 1e-9);
    CHECK(one_off.worst_bytes == 20'000);
    CHECK(one_off.worst_factor == doctest::Approx(4.0));
    CHECK(one_off.mean_factor == doctest::Approx(std::pow(4.0, 0.2)));
    std::mt19937 random{5};
    for (int repeat = 0; repeat != 50; ++repeat) {
        pulse::link truth = random_link(random);
        if (repeat % 5 == 0) { truth.latency_us = 0.0; }
        const link_fit found = fit_link(measured(truth));
        check_near(found.line, truth, 1e-6);
        CHECK(found.worst_factor < 1 + 1e-6);
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
        CHECK(found.worst_factor < 1.12);
        CHECK(found.mean_factor == doctest::Approx(mean_factor(samples, found.line)));
    }
}

TEST_CASE("a switch of protocol in the middle moves neither end of the line") {
    // Some message sizes are copied through buffers, larger ones start with a handshake; most sizes have neither.
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
        CHECK(found.worst_factor > 1.5); // it reports so
        CHECK(found.worst_bytes >= 4096);
        CHECK(found.worst_bytes < (std::int64_t{1} << 22));
    }
}

TEST_CASE("a few messages that were held up, and a few that were not sent at all, change little") {
    std::mt19937 random{13};
    for (int repeat = 0; repeat != 50; ++repeat) {
        const pulse::link truth = random_link(random);
        std::vector<link_sample> samples = measured(truth);
        std::shuffle(samples.begin(), samples.end(), random);
        samples[0].us *= 1e4;
        samples[1].us *= 20;
        samples[2].us *= 1e-3;
        check_near(fit_link(samples).line, truth, 1e-6);
    }
}

TEST_CASE("no line through two samples is off by a smaller factor, whatever the samples") {
    std::mt19937 random{11};
    std::uniform_real_distribution<double> uniform{0.0, 1.0};
    int fitted = 0;
    for (int repeat = 0; repeat != 60; ++repeat) {
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
        } catch (const pulse::input_error&) { continue; } // a single size, or falling times
        ++fitted;
        const double least = mean_factor(samples, found.line);
        CHECK(found.mean_factor == doctest::Approx(least));
        double worst = 1.0;
        for (const link_sample& a : samples) {
            worst = std::max(worst, factor_of(a, found.line));
            for (const link_sample& b : samples) {
                const double grown_us = b.us - a.us;
                const auto more = static_cast<double>(b.bytes - a.bytes);
                if (!(more > 0.0) || !(grown_us > 0.0)) { continue; }
                const pulse::link line{.latency_us = a.us - grown_us / more * static_cast<double>(a.bytes),
                                       .bandwidth_gb_per_s = more / grown_us * 1e-3};
                if (line.latency_us >= 0.0) { CHECK(mean_factor(samples, line) >= least * (1 - 1e-12)); }
            }
            if (a.bytes == 0) { continue; }
            const pulse::link at_once{.latency_us = 0.0,
                                      .bandwidth_gb_per_s = static_cast<double>(a.bytes) / a.us * 1e-3};
            CHECK(mean_factor(samples, at_once) >= least * (1 - 1e-12));
        }
        CHECK(found.worst_factor == doctest::Approx(worst));
    }
    CHECK(fitted > 30);
}

TEST_CASE("a latency is never negative, whatever the times of small messages") {
    std::vector<link_sample> samples;
    for (std::int64_t i = 1; i != 9; ++i) { samples.push_back({1000 * i, static_cast<double>(9 * i - 8)}); }
    const link_fit found = fit_link(samples);
    CHECK(found.line.latency_us == 0.0);
    CHECK(found.line.bandwidth_gb_per_s > 1.0 / 9.0);
    CHECK(found.line.bandwidth_gb_per_s < 1.0);
}

TEST_CASE("what no line can be fitted to is named") {
    CHECK(why_not({}) == "link samples: messages of at least two sizes are needed");
    CHECK(why_not({{8, 1.0}, {8, 2.0}}) == "link samples: messages of at least two sizes are needed");
    CHECK(why_not({{8, 1.0}, {-1, 2.0}}) == "link samples: bytes must be at least 0, not -1");
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
        CHECK(why_not({{8, 1.0}, {16, bad}}) == "link samples: the time of 16 bytes must be finite and positive");
    }
    CHECK(why_not({{8, 1.0}, {16, 1.0}, {32, 1.0}}) == "link samples: their times must grow with the bytes");
    CHECK(why_not({{8, 3.0}, {16, 2.0}, {32, 1.0}}) == "link samples: their times must grow with the bytes");
    CHECK(why_not({{8, 1.0}, {16, 2.0}}) == "accepted");
}
