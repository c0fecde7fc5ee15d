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
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/encode/tokenizer_vocabulary.hpp>

namespace pulse::encode {

/// BERT's tokenizer, equal to transformers' BertTokenizer: words and punctuation, then the longest pieces of vocab.txt.
///
/// transformers' BertTokenizerFast differs on characters that Unicode has since version 8.
class bert_tokenizer : public tokenizer {
public:
    bert_tokenizer(const named_text& tokens, const tokenizer_settings& settings, std::optional<int> length = {}) :
        bert_tokenizer{parts{tokens, settings}, settings.length(length)} {}

private:
    struct parts {
        parts(const named_text& file, const tokenizer_settings& settings) :
            tokens{vocabulary::from_lines(file)}, begin{add(settings.role("cls_token", "[CLS]"))},
            end{add(settings.role("sep_token", "[SEP]"))}, pad{add(settings.role("pad_token", "[PAD]"))},
            unknown{add(settings.role("unk_token", "[UNK]"))}, lower{settings.flag("do_lower_case", true)},
            strip{settings.flag("strip_accents", lower)}, chinese{settings.flag("tokenize_chinese_chars", true)} {
            add(settings.role("mask_token", "[MASK]"));
            for (const added_token& token : settings.added()) { add(token); }
            if (!settings.flag("do_basic_tokenize", true)) {
                settings.config_field()["do_basic_tokenize"].fail("is false, which is not supported");
            }
        }
        std::int32_t add(const added_token& token) { return added.add(token, tokens, tokens.name()); }

        vocabulary tokens;
        added_tokens added{};
        std::int32_t begin, end, pad, unknown;
        bool lower, strip, chinese;
    };

    bert_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .begin = made.begin, .end = made.end, .pad = made.pad},
                  1 + std::max(made.tokens.greatest(), made.added.greatest())},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        std::vector<std::int32_t> ids{};
        parts_.added.raw().split(
            code_points(text, what), [&](std::u32string_view between) { split(between, ids); },
            [&](std::int32_t id) { ids.push_back(id); });
        return ids;
    }

    /// Words of a text without added tokens.
    void split(std::u32string_view text, std::vector<std::int32_t>& ids) const {
        std::u32string word{};
        const auto end_word = [&] {
            if (!word.empty()) { append(word, ids); }
            word.clear();
        };
        std::u32string clean{};
        for (const char32_t point : parts_.lower ? lower_case(text) : std::u32string{text}) {
            if (point == U'\t' || point == U'\n' || point == U'\r') {
                clean.push_back(U' ');
            } else if (point == 0xfffd || category(point)[0] == 'C') {
                continue;
            } else if (parts_.chinese && is_chinese(point)) {
                clean += {U' ', point, U' '};
            } else {
                clean.push_back(point);
            }
        }
        clean = composed(clean);
        if (parts_.strip) { clean = decomposed(clean); }
        for (const char32_t point : clean) {
            if (is_space(point)) {
                end_word();
            } else if (is_punctuation(point)) {
                end_word();
                append({&point, 1}, ids);
            } else if (!parts_.strip || category(point) != "Mn") {
                word.push_back(point);
            }
        }
        end_word();
    }

    /// The longest piece of the vocabulary, again and again; one unknown token for a word that has no such pieces.
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

    /// Blocks of CJK Unified Ideographs and of compatibility, as BERT's authors list them: no Hangul, no kana.
    [[nodiscard]] static bool is_chinese(char32_t c) noexcept {
        return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
               (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
               (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
    }
    /// Signs such as ^ and $ too, though Unicode calls them symbols.
    [[nodiscard]] static bool is_punctuation(char32_t c) {
        if (c < 0x80) { return c > 0x20 && category(c)[0] != 'L' && category(c)[0] != 'N' && category(c)[0] != 'C'; }
        return category(c)[0] == 'P';
    }

    parts parts_;
};

} // namespace pulse::encode
