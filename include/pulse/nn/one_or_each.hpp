#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <stdexcept>

namespace pulse {

/// One value for all, or a list of at most 8 with one for each, as in a diffusers config: `= 2` or `= {1, 2, 10}`.
template <class T>
struct one_or_each {
    // No initialisers: a template argument whose last values are those of a default constructor confuses g++ 12.
    std::array<T, 8> values;
    int count; ///< length of the list; 0: the first value is for all

    constexpr one_or_each() = default;
    template <std::convertible_to<T> All>
    constexpr one_or_each(const All& all) : values{T(all)}, count{} {}
    constexpr one_or_each(std::initializer_list<T> list) : values{}, count{} {
        if (list.size() > values.size()) { throw std::length_error("pulse: a config list must have at most 8 values"); }
        for (const T& one : list) { values[static_cast<std::size_t>(count++)] = one; }
    }
    /// The form in which nvcc spells a template argument.
    constexpr one_or_each(const std::array<T, 8>& all, int how_many) : values{all}, count{how_many} {}

    /// Elements beyond the list are T{}.
    [[nodiscard]] constexpr const T& operator[](int i) const noexcept {
        return values[static_cast<std::size_t>(count == 0 ? 0 : i)];
    }
    [[nodiscard]] constexpr bool is_list() const noexcept { return count != 0; }
    /// Whether it has a value for each of `wanted`, and no more.
    [[nodiscard]] constexpr bool fits(int wanted) const noexcept { return count == 0 || count == wanted; }
    [[nodiscard]] constexpr bool operator==(const one_or_each&) const = default;
};

} // namespace pulse
