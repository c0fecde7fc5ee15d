#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

/// A measured message: the one-way time of `bytes`.
struct link_sample {
    std::int64_t bytes{};
    double us{};
};

/// A link fitted to measured messages, and its error factors: for each message, the larger of fitted and measured time
/// divided by the smaller.
struct link_fit {
    link line{};
    double mean_factor{1.0};    ///< geometric mean over the samples
    double worst_factor{1.0};   ///< the largest of them
    std::int64_t worst_bytes{}; ///< size of that message
};

namespace detail {

/// |log(line / measured)|.
[[nodiscard]] inline double log_error(double latency_us, double us_per_byte, const link_sample& s) noexcept {
    return std::abs(std::log((latency_us + us_per_byte * static_cast<double>(s.bytes)) / s.us));
}

inline void check_samples(std::span<const link_sample> samples) {
    bool two_sizes = false;
    for (const link_sample& s : samples) {
        if (s.bytes < 0) {
            throw input_error("link samples: bytes must be at least 0, not " + std::to_string(s.bytes));
        }
        if (!(s.us > 0.0) || s.us > std::numeric_limits<double>::max()) {
            throw input_error("link samples: the time of " + std::to_string(s.bytes) +
                              " bytes must be finite and positive");
        }
        two_sizes = two_sizes || s.bytes != samples.front().bytes;
    }
    if (!two_sizes) { throw input_error("link samples: messages of at least two sizes are needed"); }
}

} // namespace detail

/// Fits t = latency + bytes / bandwidth with the least mean error factor: of all lines through two samples, through one
/// sample and the origin, or level through one, the line with the least sum of |log(line / measured)|.
///
/// Logarithms weigh 8 bytes like 1 GiB, and a factor of two like a half; absolute instead of squared errors keep the
/// line at most of the sizes when a few lie off it (another protocol of the library, a cache). As in regression on
/// elemental sets, all pairs are tried: the result depends on no starting point, and the time is cubic in the number of
/// samples. On ties the first line is taken. Throws input_error for an invalid sample, for samples of one size only, or
/// if the best line does not grow with the bytes.
[[nodiscard]] inline link_fit fit_link(std::span<const link_sample> samples) {
    detail::check_samples(samples);
    double best_latency = 0.0;
    double best_slope = 0.0;
    double best = std::numeric_limits<double>::max();
    const auto attempt = [&](double latency_us, double us_per_byte) {
        if (!(latency_us >= 0.0) || !(us_per_byte >= 0.0)) { return; }
        double sum = 0.0;
        for (const link_sample& s : samples) {
            sum += detail::log_error(latency_us, us_per_byte, s);
            if (!(sum < best)) { return; }
        }
        best = sum;
        best_latency = latency_us;
        best_slope = us_per_byte;
    };
    for (std::size_t i = 0; i != samples.size(); ++i) {
        const link_sample& a = samples[i];
        attempt(a.us, 0.0);
        if (a.bytes > 0) { attempt(0.0, a.us / static_cast<double>(a.bytes)); }
        for (std::size_t j = 0; j != i; ++j) {
            const link_sample& b = samples[j];
            if (a.bytes == b.bytes) { continue; }
            const double slope = (a.us - b.us) / static_cast<double>(a.bytes - b.bytes);
            attempt(a.us - slope * static_cast<double>(a.bytes), slope);
        }
    }
    if (!(best_slope > 0.0)) { throw input_error("link samples: their times must grow with the bytes"); }
    link_fit made{{best_latency, 1e-3 / best_slope},
                  std::exp(best / static_cast<double>(samples.size())),
                  1.0,
                  samples.front().bytes};
    for (const link_sample& s : samples) {
        const double factor = std::exp(detail::log_error(best_latency, best_slope, s));
        if (factor > made.worst_factor) {
            made.worst_factor = factor;
            made.worst_bytes = s.bytes;
        }
    }
    return made;
}

} // namespace pulse
