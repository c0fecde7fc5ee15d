#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pulse {

/// Bytes that a plan may take on each device of its pipeline; 0: no limit.
class memory_limits {
public:
    /// The same limit for every device.
    constexpr memory_limits(std::int64_t bytes = 0) noexcept : all_{bytes} {} // NOLINT(google-explicit-constructor)
    /// One limit per device.
    constexpr explicit memory_limits(std::vector<std::int64_t> each) noexcept : each_{std::move(each)} {}

    [[nodiscard]] constexpr std::int64_t of(std::size_t device) const noexcept {
        return each_.empty() ? all_ : each_[device];
    }
    [[nodiscard]] constexpr std::int64_t of(int device) const noexcept { return of(static_cast<std::size_t>(device)); }
    /// Whether any device has a limit.
    [[nodiscard]] constexpr bool any() const noexcept {
        return all_ > 0 || std::any_of(each_.begin(), each_.end(), [](std::int64_t bytes) { return bytes > 0; });
    }
    /// The limits that remain when `taken` bytes of each device are in use; at least 1 byte, since 0 means no limit.
    [[nodiscard]] constexpr memory_limits less(const std::vector<std::int64_t>& taken) const {
        std::vector<std::int64_t> left{};
        for (std::size_t d = 0; d != taken.size(); ++d) {
            left.push_back(of(d) == 0 ? 0 : std::max<std::int64_t>(1, of(d) - taken[d]));
        }
        return left.empty() ? *this : memory_limits{std::move(left)};
    }
    /// The device that exceeds its limit by the most bytes, or -1.
    [[nodiscard]] constexpr int worst_over(const std::vector<std::int64_t>& peaks) const noexcept {
        int worst = -1;
        std::int64_t most = 0;
        for (std::size_t d = 0; d != peaks.size(); ++d) {
            if (of(d) == 0 || peaks[d] - of(d) <= most) { continue; }
            worst = static_cast<int>(d);
            most = peaks[d] - of(d);
        }
        return worst;
    }
    [[nodiscard]] constexpr bool operator==(const memory_limits&) const = default;

private:
    std::int64_t all_{};
    std::vector<std::int64_t> each_{};
};

} // namespace pulse
