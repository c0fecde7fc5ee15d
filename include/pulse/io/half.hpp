#pragma once

#include <bit>
#include <cstdint>

namespace pulse::io {

/// The value of an IEEE binary16 (F16 in files); exact.
[[nodiscard]] constexpr float float_of_half(std::uint16_t half) noexcept {
    const std::uint32_t sign = (half & 0x8000U) << 16U;
    const std::uint32_t exponent = half >> 10U & 0x1FU;
    const std::uint32_t fraction = half & 0x3FFU;
    if (exponent == 0) { // fraction * 2^-24
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F));
    }
    const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
    return std::bit_cast<float>(sign | wide << 23U | fraction << 13U);
}

/// The value of a bfloat16 (BF16 in files); exact.
[[nodiscard]] constexpr float float_of_bfloat16(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// The binary16 nearest to a value, ties to even; infinity from 65520 on.
[[nodiscard]] constexpr std::uint16_t half_of_float(float value) noexcept {
    std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16U & 0x8000U;
    bits &= 0x7FFFFFFFU;
    std::uint32_t half = 0;
    if (bits > 0x7F800000U) {
        half = 0x7E00U;
    } else if (bits >= 0x477FF000U) { // 65520
        half = 0x7C00U;
    } else if (bits < 0x38800000U) { // below 2^-14: the sum with 1/2 is rounded to a multiple of 2^-24
        half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    } else {
        const std::uint32_t odd = bits >> 13U & 1U;
        half = (bits - (112U << 23U) + 0xFFFU + odd) >> 13U;
    }
    return static_cast<std::uint16_t>(sign | half);
}

} // namespace pulse::io
