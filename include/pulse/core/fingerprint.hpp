#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pulse {

__extension__ typedef unsigned __int128 uint128; // NOLINT(modernize-use-using): __extension__ takes no alias

/// A hash of a sequence of values (FNV-1a of Fowler, Noll and Vo): equal values hash alike on every machine and
/// compiler, different ones collide only by accident. For detecting differences, not for security.
template <class Word>
class basic_fingerprint {
public:
    /// Adds a bool, an integer or a double as eight bytes.
    template <class T>
        requires std::integral<T> || std::same_as<T, double>
    constexpr basic_fingerprint& add(T value) noexcept {
        std::uint64_t bits{};
        if constexpr (std::integral<T>) {
            bits = static_cast<std::uint64_t>(value);
        } else {
            bits = std::bit_cast<std::uint64_t>(value);
        }
        for (int i = 0; i != 8; ++i) { byte(static_cast<unsigned char>(bits >> (8 * i))); }
        return *this;
    }
    /// Adds the length of a text, then its characters.
    constexpr basic_fingerprint& add(std::string_view text) noexcept {
        add(text.size());
        for (const char c : text) { byte(static_cast<unsigned char>(c)); }
        return *this;
    }

    [[nodiscard]] constexpr Word value() const noexcept { return bits_; }
    /// Hexadecimal, one digit per four bits.
    [[nodiscard]] constexpr std::string text() const {
        constexpr std::size_t digits = 2 * sizeof(Word);
        std::string text(digits, '0');
        for (std::size_t i = 0; i != digits; ++i) {
            text[digits - 1 - i] = "0123456789abcdef"[static_cast<std::size_t>(bits_ >> (4 * i) & 15U)];
        }
        return text;
    }
    [[nodiscard]] constexpr bool operator==(const basic_fingerprint&) const = default;

private:
    static constexpr bool wide = sizeof(Word) == sizeof(uint128);
    /// FNV-1a's offset basis and prime.
    static constexpr auto offset = static_cast<Word>(wide ? uint128{0x6C62272E07BB0142U} << 64U | 0x62B821756295C58DU
                                                          : uint128{0xCBF29CE484222325U});
    static constexpr auto prime = static_cast<Word>(wide ? uint128{1} << 88U | 0x13BU : uint128{0x100000001B3U});

    constexpr void byte(unsigned char b) noexcept { bits_ = (bits_ ^ b) * prime; }

    Word bits_{offset};
};

using fingerprint = basic_fingerprint<std::uint64_t>;
/// 128 bits: no two of 10^7 files collide by accident.
using wide_fingerprint = basic_fingerprint<uint128>;

} // namespace pulse

template <class Word>
struct std::hash<pulse::basic_fingerprint<Word>> {
    [[nodiscard]] std::size_t operator()(const pulse::basic_fingerprint<Word>& of) const noexcept {
        return static_cast<std::size_t>(of.value());
    }
};
