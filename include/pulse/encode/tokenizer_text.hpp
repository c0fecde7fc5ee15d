#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include <utf8proc.h>

#include <pulse/core/error.hpp>

/// Unicode for tokenizers, by utf8proc: categories, normal forms and lower case of UTF-8 in a library of 60 kB, where
/// ICU brings 30 MB and UTF-16. A change of Unicode's version can change ids: utf8proc 2.8 has 15.0.
namespace pulse::encode {

/// The code points of UTF-8. Throws input_error, which begins with `what` and names byte and offset of the first fault.
[[nodiscard]] inline std::u32string code_points(std::string_view text, std::string_view what) {
    std::u32string points{};
    points.reserve(text.size());
    for (std::size_t at = 0; at != text.size();) {
        const std::string_view rest = text.substr(at);
        utf8proc_int32_t point = -1;
        const utf8proc_ssize_t used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                                                       static_cast<utf8proc_ssize_t>(rest.size()), &point);
        if (used <= 0) {
            std::array<char, 8> byte{};
            std::snprintf(byte.data(), byte.size(), "0x%02x",
                          static_cast<unsigned>(static_cast<unsigned char>(rest[0])));
            throw input_error(std::string{what} + ": is not UTF-8 from byte " + std::to_string(at) + " (" +
                              byte.data() + ") on");
        }
        points.push_back(static_cast<char32_t>(point));
        at += static_cast<std::size_t>(used);
    }
    return points;
}

inline void append_utf8(char32_t point, std::string& text) {
    std::array<utf8proc_uint8_t, 4> bytes{};
    const utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes.data());
    text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

[[nodiscard]] inline std::string utf8(std::u32string_view points) {
    std::string text{};
    text.reserve(points.size());
    for (const char32_t point : points) { append_utf8(point, text); }
    return text;
}

/// The two letters by which Unicode names a category: "Lu", "Zs", "Cn".
[[nodiscard]] inline std::string_view category(char32_t point) {
    return utf8proc_category_string(static_cast<utf8proc_int32_t>(point));
}

/// Unicode's property White_Space.
[[nodiscard]] inline bool is_space(char32_t point) {
    return (point >= 0x09 && point <= 0x0d) || point == 0x85 || category(point)[0] == 'Z';
}

namespace detail {

[[nodiscard]] inline std::u32string normal_form(std::u32string_view points, int form) {
    const std::string text = utf8(points);
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | form));
    if (size < 0) { throw error(std::string{"utf8proc: "} + utf8proc_errmsg(size)); }
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner{result, &std::free};
    return code_points({reinterpret_cast<const char*>(result), static_cast<std::size_t>(size)}, "utf8proc");
}

} // namespace detail

/// Normal form C: a letter and its accents are one code point where there is one.
[[nodiscard]] inline std::u32string composed(std::u32string_view points) {
    return detail::normal_form(points, UTF8PROC_COMPOSE);
}
/// Normal form D: accents follow their letters.
[[nodiscard]] inline std::u32string decomposed(std::u32string_view points) {
    return detail::normal_form(points, UTF8PROC_DECOMPOSE);
}

/// Lower case of each character by itself, so no sigma is final; only U+0130 becomes two characters.
[[nodiscard]] inline std::u32string lower_case(std::u32string_view points) {
    std::u32string lower{};
    lower.reserve(points.size());
    for (const char32_t point : points) {
        if (point == 0x130) {
            lower += U"i\u0307";
        } else {
            lower.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
        }
    }
    return lower;
}

} // namespace pulse::encode
