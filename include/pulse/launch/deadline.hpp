#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <pulse/core/error.hpp>

namespace pulse::launch {

/// Ranks did not meet, or one was lost; the text names the ranks and what was waited for.
struct launch_error : error {
    using error::error;
};

/// The time on the steady clock at which a wait ends.
class deadline {
public:
    using clock = std::chrono::steady_clock;
    using duration = std::chrono::milliseconds;
    /// One year: sums and multiples of longer spans could overflow.
    static constexpr duration longest{std::chrono::hours{24 * 365}};

    /// `from_now` later than now, clamped to between 0 and `longest`.
    explicit deadline(duration from_now) : end_{clock::now() + std::clamp(from_now, duration{0}, longest)} {}

    [[nodiscard]] bool passed() const noexcept { return clock::now() >= end_; }
    [[nodiscard]] clock::time_point end() const noexcept { return end_; }
    /// Time left, rounded up to milliseconds, at least 0.
    [[nodiscard]] duration left() const noexcept {
        return std::max(duration{0}, std::chrono::ceil<duration>(end_ - clock::now()));
    }
    /// Time left in milliseconds as poll() takes it, at most `most`.
    [[nodiscard]] int poll_ms(duration most = std::chrono::hours{1}) const noexcept {
        return static_cast<int>(std::min(left(), most).count());
    }

private:
    clock::time_point end_;
};

/// Formats as "2.5 s", rounded to tenths.
[[nodiscard]] inline std::string seconds_text(deadline::duration span) {
    const auto tenths = (span.count() + 50) / 100;
    return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

} // namespace pulse::launch
