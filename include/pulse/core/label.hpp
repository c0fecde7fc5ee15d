#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pulse {

/// A short name that can be a template argument: a layer's, a model's, a device's.
///
/// One array of one capacity, because a string type with its own size parameter cannot be matched by nvcc 13.
struct label {
    static constexpr std::size_t capacity = 96;

    char chars[capacity]{};

    constexpr label() = default;

    template <std::size_t N>
        requires(N <= capacity)
    constexpr label(const char (&text)[N]) noexcept {
        for (std::size_t i = 0; i != N; ++i) { chars[i] = text[i]; }
    }

    /// Throws std::length_error when `text` does not fit (capacity - 1 characters).
    explicit constexpr label(std::string_view text) {
        if (text.size() >= capacity) { throw std::length_error("pulse: a name has more than 95 characters"); }
        for (std::size_t i = 0; i != text.size(); ++i) { chars[i] = text[i]; }
    }

    [[nodiscard]] constexpr std::string_view view() const noexcept { return {chars}; }
    [[nodiscard]] std::string str() const { return std::string{view()}; }
    [[nodiscard]] constexpr bool empty() const noexcept { return chars[0] == '\0'; }
    [[nodiscard]] constexpr bool operator==(const label&) const = default;
};

/// `a` followed by `b`: how a backbone derives the names of its layers. Throws std::length_error when too long.
[[nodiscard]] constexpr label operator+(const label& a, std::string_view b) {
    label joined{a};
    const std::size_t used = a.view().size();
    if (used + b.size() >= label::capacity) { throw std::length_error("pulse: a name has more than 95 characters"); }
    for (std::size_t i = 0; i != b.size(); ++i) { joined.chars[used + i] = b[i]; }
    return joined;
}

/// `a` followed by the decimal digits of `number`.
[[nodiscard]] constexpr label operator+(const label& a, unsigned number) {
    char digits[12]{};
    std::size_t at = sizeof digits;
    do {
        digits[--at] = static_cast<char>('0' + number % 10U);
        number /= 10U;
    } while (number != 0U);
    return a + std::string_view{digits + at, sizeof digits - at};
}

} // namespace pulse
