#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_added.hpp>
#include <pulse/encode/tokenizer_charsmap.hpp>
#include <pulse/encode/tokenizer_json.hpp>
#include <pulse/encode/tokenizer_pieces.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_text.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::encode {

/// T5's and mT5's tokenizer from tokenizer.json, equal to the T5Tokenizer of transformers 5: each word by itself.
class unigram_tokenizer : public tokenizer {
public:
    /// `settings` must list the added tokens of `file` (tokenizer_settings::with).
    unigram_tokenizer(const tokenizer_json& file, const tokenizer_settings& settings, std::optional<int> length = {}) :
        unigram_tokenizer{parts{file, settings}, settings.length(length)} {}

private:
    /// What tokenizer.json must contain besides its tokens.
    static constexpr std::string_view t5_form = R"({
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}]},
        "model": {"type": "Unigram", "unk_id": 2, "vocab": "any", "byte_fallback": false}})";
    static constexpr char32_t space = U'▁';

    static constexpr std::int32_t unknown = 2;

    struct parts {
        parts(const tokenizer_json& file, const tokenizer_settings& settings) :
            map{map_of(file)}, model{file.tokens_of("Unigram"), unknown}, end{add(settings.role("eos_token", "</s>"))},
            pad{add(settings.role("pad_token", "<pad>"))} {
            for (const added_token& token : settings.added()) { add(token); }
            if (add(settings.role("unk_token", "<unk>")) != unknown) {
                file.root()["model"]["unk_id"].fail("is not the id of unk_token");
            }
            nlohmann::json form = io::parse_json(t5_form, "the form");
            form["post_processor"] = tokenizer_json::around({}, {settings.role("eos_token", "</s>").content, end});
            form["normalizer"] = nullptr;
            if (map) { form["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", tokenizer_json::any}}; }
            file.require(std::move(form), settings.role("pad_token", "<pad>").content);
        }
        [[nodiscard]] static std::optional<charsmap> map_of(const tokenizer_json& file) {
            const io::json_field normalizer = file.root()["normalizer"];
            if (normalizer.value().is_null()) { return {}; }
            (void)normalizer["type"].one_of<bool>({{"Precompiled", true}});
            return charsmap{normalizer["precompiled_charsmap"]};
        }
        [[nodiscard]] std::u32string normalize(std::u32string_view text) const {
            return map ? (*map)(text) : std::u32string{text};
        }
        std::int32_t add(const added_token& token) {
            return added.add(token, model, model.name(), [&](std::u32string_view text) { return normalize(text); });
        }

        std::optional<charsmap> map;
        unigram model;
        added_tokens added{};
        std::int32_t end, pad;
    };

    unigram_tokenizer(parts made, int length) :
        tokenizer{{.length = length, .end = made.end, .pad = made.pad},
                  1 + std::max(made.model.greatest(), made.added.greatest())},
        parts_{std::move(made)} {}

    [[nodiscard]] std::vector<std::int32_t> pieces(std::string_view text, std::string_view what) const override {
        return parts_.added.pieces(
            code_points(text, what), [&](std::u32string_view between) { return parts_.normalize(between); },
            [&](std::u32string_view words, std::vector<std::int32_t>& ids) { split(words, ids); });
    }

    /// Splits words at white space and before each sign of a space; every word begins with that sign.
    void split(std::u32string_view text, std::vector<std::int32_t>& ids) const {
        std::u32string word{};
        const auto end_word = [&] {
            if (!word.empty()) { parts_.model.append(word, ids); }
            word.clear();
        };
        for (const char32_t point : text) {
            if (is_space(point) || point == space) { end_word(); }
            if (is_space(point)) { continue; }
            if (word.empty()) { word.push_back(space); }
            if (point != space) { word.push_back(point); }
        }
        end_word();
    }

    parts parts_;
};

} // namespace pulse::encode
