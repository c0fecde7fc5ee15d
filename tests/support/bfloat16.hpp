#pragma once

#include <bit>
#include <concepts>
#include <cstdint>

namespace pulse::test {

/// The upper half of a float, rounded to nearest, ties to even: a scalar that, like those of a GPU, is no built-in
/// floating-point type. All conversions are explicit.
class bfloat16 {
public:
    bfloat16() = default;
    template <std::floating_point F>
    explicit bfloat16(F value) : bits_{rounded(static_cast<float>(value))} {}

    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16U); }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
    [[nodiscard]] bool operator==(const bfloat16&) const = default;

private:
    [[nodiscard]] static std::uint16_t rounded(float value) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        if (value != value) { return static_cast<std::uint16_t>(bits >> 16U | 0x40U); }
        return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
    }

    std::uint16_t bits_{};
};

} // namespace pulse::test
