#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>

namespace pulse::data {

/// Number of bytes of `text` before the first that is not UTF-8 (RFC 3629: no overlong forms, no surrogates, at most
/// U+10FFFF); its size if all are.
[[nodiscard]] constexpr std::size_t valid_utf8(std::string_view text) noexcept {
    std::size_t at = 0;
    while (at != text.size()) {
        const auto byte = [&](std::size_t i) {
            return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
        };
        const unsigned lead = byte(0);
        std::size_t length = 1;
        if (lead >= 0x80) {
            // The second byte rules out overlong forms, surrogates and code points that are too large.
            const unsigned least = lead == 0xE0 ? 0xA0U : lead == 0xF0 ? 0x90U : 0x80U;
            const unsigned most = lead == 0xED ? 0x9FU : lead == 0xF4 ? 0x8FU : 0xBFU;
            length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
            if (lead < 0xC2 || lead > 0xF4 || byte(1) < least || byte(1) > most) { return at; }
            for (std::size_t i = 2; i != length; ++i) {
                if (byte(i) < 0x80 || byte(i) > 0xBF) { return at; }
            }
        }
        at += length;
    }
    return at;
}

/// A name on one line of text: control characters, which file names may hold, and bytes that are not UTF-8 are shown as
/// '?'.
[[nodiscard]] inline std::string one_line(std::string_view name) {
    std::string shown{name};
    for (std::size_t at = valid_utf8(shown); at != shown.size(); at = valid_utf8(shown)) { shown[at] = '?'; }
    for (char& c : shown) { c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c; }
    return shown;
}

/// Maximum bytes of a caption; nothing longer is one.
inline constexpr std::size_t longest_caption = std::size_t{1} << 20U;

/// The text of a caption file without leading byte order marks and surrounding white space. Throws input_error naming
/// `source` when it is not UTF-8, holds a zero character or is too long.
[[nodiscard]] inline std::string checked_caption(std::string_view text, std::string_view source) {
    const auto refuse = [&](const std::string& why) {
        throw input_error(std::string{source} + ": the caption " + why);
    };
    if (text.size() > longest_caption) {
        refuse("has " + std::to_string(text.size()) + " bytes, more than " + std::to_string(longest_caption));
    }
    if (const std::size_t valid = valid_utf8(text); valid != text.size()) {
        refuse("is not UTF-8 from byte " + std::to_string(valid));
    }
    if (text.find('\0') != std::string_view::npos) { refuse("holds a zero character"); }
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    constexpr std::string_view blank = " \t\r\n";
    while (!text.empty()) {
        if (text.substr(0, mark.size()) == mark) {
            text.remove_prefix(mark.size());
        } else if (blank.find(text.front()) != std::string_view::npos) {
            text.remove_prefix(1);
        } else {
            return std::string{text.substr(0, text.find_last_not_of(blank) + 1)};
        }
    }
    return {};
}

} // namespace pulse::data
