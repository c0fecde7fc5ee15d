#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_added.hpp>
#include <pulse/encode/tokenizer_json.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/encode/tokenizer_vocabulary.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// BERT's tokenizer: words and punctuation, then the longest pieces of the vocabulary. From vocab.txt it equals the
/// BertTokenizer of transformers 4, from tokenizer.json that of transformers 5.
///
/// transformers 5 differs on characters that Unicode has since version 8.
class bert_tokenizer : public tokenizer {
public:
    bert_tokenizer(const named_text& tokens, const tokenizer_settings& settings, std::optional<int> length = {}) :
        bert_tokenizer{parts{tokens, settings}, settings.length(length)} {}
    /// `settings` must list the added tokens of `file` (tokenizer_settings::with).
    bert_tokenizer(const tokenizer_json& file, const tokenizer_settings& settings, std::optional<int> length = {}) :
        bert_tokenizer{parts{file, settings}, settings.length(length)} {}

private:
    /// What tokenizer.json must contain besides its tokens.
    static constexpr std::string_view bert_form = R"({
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": "any",
            "strip_accents": "any", "lowercase": "any"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": "any"}})";

    struct parts {
        parts(const named_text& file, const tokenizer_settings& settings) :
            parts{vocabulary::from_lines(file), settings, {}} {}
        parts(const tokenizer_json& file, const tokenizer_settings& settings) :
            parts{file.vocabulary_of("WordPiece"), settings, file.root()["normalizer"]} {
            const auto role = [&](const char* name, const char* otherwise) {
                return settings.role(name, otherwise).content;
            };
            nlohmann::json form = io::parse_json(bert_form, "the form");
            form["post_processor"] =
                tokenizer_json::around({{role("cls_token", "[CLS]"), begin}}, {role("sep_token", "[SEP]"), end});
            form["model"]["unk_token"] = role("unk_token", "[UNK]");
            file.require(std::move(form), role("pad_token", "[PAD]"));
        }
        /// With the normalizer of tokenizer.json, if there is one.
        parts(vocabulary all, const tokenizer_settings& settings, const std::optional<io::json_field>& normalizer) :
            tokens{std::move(all)}, slow{!normalizer}, lower{flag(settings, "do_lower_case", true, normalizer,
                                                                  "lowercase")},
            strip{flag(settings, "strip_accents", lower, normalizer, "strip_accents")},
            chinese{flag(settings, "tokenize_chinese_chars", true, normalizer, "handle_chinese_chars")},
            begin{add(settings.role("cls_token", "[CLS]"))}, end{add(settings.role("sep_token", "[SEP]"))},
            pad{add(settings.role("pad_token", "[PAD]"))}, unknown{add(settings.role("unk_token", "[UNK]"))} {
            add(settings.role("mask_token", "[MASK]"));
            for (const added_token& token : settings.added()) { add(token); }
            if (!settings.flag("do_basic_tokenize", true)) {
                settings.config_field()["do_basic_tokenize"].fail("is false, which is not supported");
            }
        }
        std::int32_t add(const added_token& token) {
            if (slow) { return added.add(token, tokens, tokens.name()); }
            return added.add(token, tokens, tokens.name(), [&](std::u32string_view text) { return normalize(text); });
        }
        /// A flag of the config, which the normalizer must not contradict.
        [[nodiscard]] static bool flag(const tokenizer_settings& settings, const char* name, bool otherwise,
                                       const std::optional<io::json_field>& normalizer, const char* called) {
            if (!normalizer) { return settings.flag(name, otherwise); }
            const io::json_field field = (*normalizer)[called];
            const bool said = field.value().is_null() ? otherwise : field.boolean();
            if (settings.flag(name, otherwise) != said) {
                field.fail("differs from " + std::string{name} + " of tokenizer_config.json");
            }
            return said;
        }
        /// The text without control characters, Chinese characters spaced, in lower case and without accents if asked.
        [[nodiscard]] std::u32string normalize(std::u32string_view text) const {
            std::u32string clean{};
            for (const char32_t point : lower ? lower_case(text) : std::u32string{text}) {
                if (point == U'\t' || point == U'\n' || point == U'\r') {
                    clean.push_back(U' ');
                } else if (point == 0xfffd || (category(point)[0] == 'C' && (slow || category(point) != "Cn"))) {
                    continue;
                } else if (chinese && is_chinese(point) && (slow || point < 0x2b820 || point > 0x2b91f)) {
                    clean += {U' ', point, U' '};
                } else {
                    clean.push_back(point);
                }
            }
            if (slow) { clean = composed(clean); }
            if (strip) {
                clean = decomposed(clean);
                std::erase_if(clean, [](char32_t point) { return category(point) == "Mn"; });
            }
            return clean;
        }

        vocabulary tokens;
        added_tokens added{};
        /// As the Python tokenizer of transformers 4: normal form C, unassigned characters dropped, all Chinese ones
        /// known, and added tokens found in the text as it is.
        bool slow;
        bool lower, strip, chinese;
        std::int32_t begin, end, pad, unknown;
    };

    bert_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .begin = made.begin, .end = made.end, .pad = made.pad},
                  1 + std::max(made.tokens.greatest(), made.added.greatest())},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        return parts_.added.pieces(
            code_points(text, what), [&](std::u32string_view between) { return parts_.normalize(between); },
            [&](std::u32string_view words, std::vector<std::int32_t>& ids) { split(words, ids); });
    }

    /// Splits a normalized text without added tokens into words.
    void split(std::u32string_view text, std::vector<std::int32_t>& ids) const {
        std::u32string word{};
        const auto end_word = [&] {
            if (!word.empty()) { append(word, ids); }
            word.clear();
        };
        for (const char32_t point : text) {
            if (is_space(point)) {
                end_word();
            } else if (is_punctuation(point)) {
                end_word();
                append({&point, 1}, ids);
            } else {
                word.push_back(point);
            }
        }
        end_word();
    }

    /// Appends the longest piece of the vocabulary, again and again; one unknown token for a word without such pieces.
    void append(std::u32string_view word, std::vector<std::int32_t>& ids) const {
        constexpr std::size_t longest = 100;
        std::vector<std::int32_t> found{};
        for (std::size_t at = 0; at != word.size() && word.size() <= longest;) {
            std::optional<std::int32_t> id{};
            std::size_t size = word.size() - at;
            for (; size != 0; --size) {
                id = parts_.tokens((at == 0 ? "" : "##") + utf8(word.substr(at, size)));
                if (id) { break; }
            }
            if (!id) {
                found.clear();
                break;
            }
            found.push_back(*id);
            at += size;
        }
        if (found.empty()) { found.push_back(parts_.unknown); }
        ids.insert(ids.end(), found.begin(), found.end());
    }

    /// CJK Unified and Compatibility Ideographs, in the blocks that BERT's authors list: no Hangul, no kana.
    [[nodiscard]] static bool is_chinese(char32_t c) noexcept {
        return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
               (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
               (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
    }
    /// Includes signs such as ^ and $, which Unicode calls symbols.
    [[nodiscard]] static bool is_punctuation(char32_t c) {
        if (c < 0x80) { return c > 0x20 && category(c)[0] != 'L' && category(c)[0] != 'N' && category(c)[0] != 'C'; }
        return category(c)[0] == 'P';
    }

    parts parts_;
};

} // namespace pulse::encode
