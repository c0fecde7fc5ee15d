#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pulse {

/// 64 bits that stand for a sequence of values: the same on every machine and compiler for the same values, others for
/// others but by accident (FNV-1a of Fowler, Noll and Vo). For finding what differs, not for keeping secrets.
class fingerprint {
public:
    /// A truth value, a number that is whole, or one that is not: eight bytes.
    template <class T>
        requires std::integral<T> || std::same_as<T, double>
    constexpr fingerprint& add(T value) noexcept {
        std::uint64_t bits{};
        if constexpr (std::integral<T>) {
            bits = static_cast<std::uint64_t>(value);
        } else {
            bits = std::bit_cast<std::uint64_t>(value);
        }
        for (int i = 0; i != 8; ++i) { byte(static_cast<unsigned char>(bits >> (8 * i))); }
        return *this;
    }
    /// How long a text is, and the text.
    constexpr fingerprint& add(std::string_view text) noexcept {
        add(text.size());
        for (const char c : text) { byte(static_cast<unsigned char>(c)); }
        return *this;
    }

    [[nodiscard]] constexpr std::uint64_t value() const noexcept { return bits_; }
    /// Sixteen hexadecimal digits.
    [[nodiscard]] constexpr std::string text() const {
        std::string digits(16, '0');
        for (std::size_t i = 0; i != 16; ++i) { digits[15 - i] = "0123456789abcdef"[bits_ >> (4 * i) & 15U]; }
        return digits;
    }
    [[nodiscard]] constexpr bool operator==(const fingerprint&) const = default;

private:
    constexpr void byte(unsigned char b) noexcept { bits_ = (bits_ ^ b) * 0x100000001B3U; }

    std::uint64_t bits_{0xCBF29CE484222325U};
};

} // namespace pulse
