#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <utf8proc.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::encode {

/// SentencePiece's map from characters to replacements, read as the tokenizers library reads it: whole characters with
/// their accents if these have fewer than 6 bytes, else code points; of several keys that match, the shortest.
///
/// SentencePiece itself takes the longest key and matches past the ends of characters.
class charsmap {
public:
    /// The field is Base64 of the size of a double array in 4 bytes, the array, and the texts that it leads to, each
    /// terminated by a zero. Throws input_error naming the field.
    explicit charsmap(const io::json_field& field) : place_{field.place()} {
        const std::string bytes = from_base64(field);
        const auto word = [&](std::size_t at) {
            std::uint32_t value = 0;
            for (std::size_t i = 4; i-- != 0;) { value = value << 8U | static_cast<unsigned char>(bytes[at + i]); }
            return value;
        };
        const std::size_t size = bytes.size() < 4 ? 0 : word(0);
        if (size < 4 || size % 4 != 0 || size > bytes.size() - 4) { field.fail("has no map of characters"); }
        for (std::size_t at = 4; at != 4 + size; at += 4) { units_.push_back(word(at)); }
        texts_ = bytes.substr(4 + size);
    }

    /// The text with its characters replaced. Throws input_error naming the field when a replacement is not UTF-8.
    [[nodiscard]] std::u32string operator()(std::u32string_view text) const {
        std::string made{};
        for (std::size_t at = 0; at != text.size();) {
            const std::size_t size = character(text.substr(at));
            const std::u32string_view whole = text.substr(at, size);
            at += size;
            if (const std::string bytes = utf8(whole); bytes.size() < 6) {
                if (const auto other = find(bytes)) {
                    made += *other;
                    continue;
                }
            }
            for (const char32_t point : whole) {
                const std::string bytes = utf8({&point, 1});
                made += find(bytes).value_or(bytes);
            }
        }
        return code_points(made, place_);
    }

private:
    [[nodiscard]] static std::string from_base64(const io::json_field& field) {
        constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        std::string_view text = field.text();
        while (text.ends_with('=')) { text.remove_suffix(1); }
        std::string bytes{};
        std::uint32_t bits = 0;
        unsigned count = 0;
        for (const char c : text) {
            const std::size_t digit = digits.find(c);
            if (digit == std::string_view::npos) { field.fail("is not Base64"); }
            bits = bits << 6U | static_cast<std::uint32_t>(digit);
            count += 6;
            if (count >= 8) {
                count -= 8;
                bytes.push_back(static_cast<char>(bits >> count & 0xffU));
            }
        }
        return bytes;
    }
    /// Number of code points in the first character of a text, by Unicode's rules of grapheme clusters.
    [[nodiscard]] static std::size_t character(std::u32string_view text) {
        utf8proc_int32_t state = 0;
        std::size_t size = 1;
        while (size != text.size() &&
               !utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(text[size - 1]),
                                                 static_cast<utf8proc_int32_t>(text[size]), &state)) {
            ++size;
        }
        return size;
    }
    /// The replacement of the shortest key with which `bytes` begin.
    [[nodiscard]] std::optional<std::string_view> find(std::string_view bytes) const {
        const auto offset = [](std::uint32_t unit) { return std::size_t{unit >> 10U} << ((unit & 0x200U) >> 6U); };
        std::size_t at = offset(units_[0]);
        for (const char c : bytes) {
            const std::uint32_t byte = static_cast<unsigned char>(c);
            at ^= byte;
            if (byte == 0 || at >= units_.size()) { return {}; }
            const std::uint32_t unit = units_[at];
            if ((unit & 0x800000ffU) != byte) { return {}; }
            at ^= offset(unit);
            if ((unit & 0x100U) != 0 && at < units_.size()) {
                const std::size_t text = units_[at] & 0x7fffffffU;
                if (text >= texts_.size()) { return ""; }
                const std::string_view rest = std::string_view{texts_}.substr(text);
                return rest.substr(0, rest.find('\0'));
            }
        }
        return {};
    }

    std::vector<std::uint32_t> units_{};
    std::string texts_{};
    std::string place_;
};

} // namespace pulse::encode
