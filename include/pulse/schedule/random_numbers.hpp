#pragma once

#include <cstdint>

namespace pulse::detail {

/// SplitMix64 (Steele, Lea, Flood, 2014): yields the same numbers on every platform and in constant evaluation.
class random_numbers {
public:
    [[nodiscard]] constexpr std::uint64_t below(std::uint64_t count) noexcept { return next() % count; }
    [[nodiscard]] constexpr double unit() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

private:
    constexpr std::uint64_t next() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }

    std::uint64_t state_{};
};

} // namespace pulse::detail
