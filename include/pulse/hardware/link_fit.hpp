#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/hardware/link.hpp>

namespace pulse {

/// A measured message: how long `bytes` took one way.
struct link_sample {
    std::int64_t bytes{};
    double us{};
};

/// A link that was fitted to measured messages, and how far it is from them.
struct link_fit {
    link line{};
    double mean_error{};        ///< of |line / measured - 1| over the samples
    double worst_error{};       ///< the largest of them
    std::int64_t worst_bytes{}; ///< the message that has it
};

namespace detail {

/// |line / measured - 1|.
[[nodiscard]] constexpr double relative_error(double latency_us, double us_per_byte, const link_sample& s) noexcept {
    const double off = (latency_us + us_per_byte * static_cast<double>(s.bytes)) / s.us - 1.0;
    return off < 0.0 ? -off : off;
}

constexpr void check_samples(std::span<const link_sample> samples) {
    bool two_sizes = false;
    for (const link_sample& s : samples) {
        if (s.bytes < 0) { throw input_error("link samples: a message of " + std::to_string(s.bytes) + " bytes"); }
        if (!(s.us > 0.0) || s.us > std::numeric_limits<double>::max()) {
            throw input_error("link samples: the time of " + std::to_string(s.bytes) +
                              " bytes must be finite and positive");
        }
        two_sizes = two_sizes || s.bytes != samples.front().bytes;
    }
    if (!two_sizes) { throw input_error("link samples: messages of two sizes at least are needed"); }
}

} // namespace detail

/// The link t = latency + bytes / bandwidth whose mean relative error |line / measured - 1| over the samples is least.
///
/// Least absolute relative deviations: relative, so that 8 bytes count as much as 1 GiB; absolute and not squared, so
/// that sizes off the line (another protocol of the library, a cache) leave it where the most sizes are. A best line
/// goes through two of the samples, or through one and the origin or level, so that all of those are tried: exact, and
/// cubic in the number of samples. Of equal lines the first is taken. Throws input_error where a sample is no message, all
/// have one size, or the best line does not grow with the bytes.
[[nodiscard]] constexpr link_fit fit_link(std::span<const link_sample> samples) {
    detail::check_samples(samples);
    double best_latency = 0.0;
    double best_slope = 0.0;
    double best = std::numeric_limits<double>::max();
    const auto attempt = [&](double latency_us, double us_per_byte) {
        if (!(latency_us >= 0.0) || !(us_per_byte >= 0.0)) { return; }
        double sum = 0.0;
        for (const link_sample& s : samples) {
            sum += detail::relative_error(latency_us, us_per_byte, s);
            if (sum >= best) { return; }
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
    if (!(best_slope > 0.0)) { throw input_error("link samples: their times do not grow with the bytes"); }
    link_fit made{{best_latency, 1e-3 / best_slope}, 0.0, 0.0, samples.front().bytes};
    for (const link_sample& s : samples) {
        const double error = detail::relative_error(best_latency, best_slope, s);
        made.mean_error += error / static_cast<double>(samples.size());
        if (error > made.worst_error) {
            made.worst_error = error;
            made.worst_bytes = s.bytes;
        }
    }
    return made;
}

} // namespace pulse
