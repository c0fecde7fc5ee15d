#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_clip.hpp>

#include <encode/vocabularies.hpp>

namespace {

using namespace pulse::encode;
using pulse::test::small_clip;
using pulse::test::with;

/// Byte-pair encoding by definition: repeatedly merges the neighbours that come first in the list.
std::vector<std::int32_t> pairs_by_definition(const small_clip& clip, const std::string& word) {
    std::vector<std::string> parts{};
    for (const char c : word) { parts.emplace_back(1, c); }
    parts.back() += "</w>";
    for (;;) {
        std::size_t best = clip.merges.size();
        std::size_t place = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto found = std::ranges::find(clip.merges, std::pair{parts[i], parts[i + 1]});
            const auto rank = static_cast<std::size_t>(found - clip.merges.begin());
            if (rank < best) {
                best = rank;
                place = i;
            }
        }
        if (best == clip.merges.size()) { break; }
        parts[place] += parts[place + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
    std::vector<std::int32_t> ids{};
    for (const std::string& part : parts) {
        ids.push_back(static_cast<std::int32_t>(std::ranges::find(clip.tokens, part) - clip.tokens.begin()));
    }
    return ids;
}

} // namespace

TEST_CASE("byte pairs are joined in the order of the merges") {
    std::mt19937 draw{1};
    for (unsigned seed = 0; seed != 200; ++seed) {
        const small_clip clip{seed, static_cast<int>(draw() % 30)};
        const byte_pairs pairs{vocabulary::from_json(clip.vocab_json()), clip.merges_txt(), 0};
        for (int i = 0; i != 20; ++i) {
            std::string word(1 + draw() % 24, ' ');
            for (char& c : word) { c = static_cast<char>('a' + draw() % (i % 2 == 0 ? 4 : 2)); }
            std::vector<std::int32_t> ids{};
            pairs.append(word, ids);
            CAPTURE(word);
            REQUIRE(ids == pairs_by_definition(clip, word));
        }
    }
}

TEST_CASE("a text has the tokenizer's length, its mask counts what is there, and what is cut is counted") {
    const small_clip clip{3, 10};
    const auto begin = static_cast<std::int32_t>(clip.tokens.size());
    for (const int length : {3, 4, 7, 77}) {
        const clip_tokenizer tokenizer{clip.vocab_json(), clip.merges_txt(), {}, length};
        CHECK(tokenizer.length() == length);
        CHECK(tokenizer.vocabulary_size() == begin + 2);
        for (int words = 0; words != 100; ++words) {
            std::string text{};
            for (int i = 0; i != words; ++i) { text += "D "; }
            const encoded_text made = tokenizer(text);
            const int kept = std::min(words, length - 2);
            REQUIRE(made.ids.size() == static_cast<std::size_t>(length));
            REQUIRE(made.mask.size() == made.ids.size());
            CHECK(made.cut == words - kept);
            CHECK(std::ranges::count(made.mask, 1) == kept + 2);
            CHECK(std::ranges::is_sorted(made.mask, std::ranges::greater{}));
            CHECK(made.ids.front() == begin);
            CHECK(std::ranges::count(made.ids, 7) == kept);
            CHECK(std::ranges::count(made.ids, begin + 1) == length - kept - 1);
        }
    }
}

TEST_CASE("a text that is not UTF-8 is refused with the byte where it stops being it") {
    const small_clip clip{3, 10};
    const clip_tokenizer tokenizer{clip.vocab_json(), clip.merges_txt(), {}, 77};
    for (const char* bad :
         {"\xff", "\x80", "\xc3", "\xc3(", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82", "\xf0\x9f\x98"}) {
        CAPTURE(bad);
        CHECK_THROWS_WITH_AS((void)tokenizer("abc\xc3\xa9" + std::string{bad}, "captions.jsonl: line 3"),
                             doctest::Contains("captions.jsonl: line 3: is not UTF-8 from byte 5 (0x"),
                             pulse::input_error);
    }
    CHECK_NOTHROW((void)tokenizer(std::string{"\0a\0", 3}));
}

TEST_CASE("special tokens are where the configuration says: transformers' rules of precedence") {
    const small_clip clip{3, 0};
    const named_text map{R"({"pad_token": "c", "bos_token": {"content": "<|startoftext|>", "normalized": true}})",
                         "special_tokens_map.json"};
    const auto pad_of = [&](const tokenizer_settings& settings) {
        return clip_tokenizer{clip.vocab_json(), clip.merges_txt(), settings}("").ids.back();
    };
    const std::string config = R"({"model_max_length": 9, "pad_token": "b")";
    CHECK(pad_of(with(config + "}")) == 1);
    CHECK(pad_of({named_text{config + "}", "tokenizer_config.json"}, map}) == 2);
    CHECK(pad_of({named_text{config + R"(, "added_tokens_decoder": {"1": {"content": "b"}}})", "tokenizer_config.json"},
                  map}) == 1);

    // a token as written, one that results from normalizing, and one that is no letter
    const clip_tokenizer tokenizer{
        clip.vocab_json(), clip.merges_txt(), {named_text{config + "}", "tokenizer_config.json"}, map}};
    CHECK(tokenizer("C<|StartOfText|>c").ids == std::vector<std::int32_t>{8, 6, 8, 2, 9, 2, 2, 2, 2});
}

TEST_CASE("settings that would change ids, or give none, are refused with file and field") {
    const small_clip clip{3, 0};
    const auto refusal = [&](const std::string& config) -> std::string {
        try {
            (void)clip_tokenizer{clip.vocab_json(), clip.merges_txt(), with(config)};
        } catch (const pulse::input_error& e) { return e.what(); }
        return "accepted";
    };
    CHECK(refusal(R"({"model_max_length": 77})") == "accepted");
    CHECK(refusal(R"({"model_max_length": 77, "additional_special_tokens": null, "pad_token": null})") == "accepted");
    CHECK(refusal("{}") == "tokenizer_config.json: the file has no model_max_length, and none is given");
    CHECK(refusal(R"({"model_max_length": null})") ==
          "tokenizer_config.json: the file has no model_max_length, and none is given");
    for (const std::string length : {"1000000000000000019884624838656", "2147483647", "65537"}) {
        CHECK(refusal(R"({"model_max_length": )" + length + "}") ==
              "tokenizer_config.json: model_max_length is beyond 65536, and no length is given");
    }
    CHECK(refusal(R"({"model_max_length": 65536})") == "accepted");
    CHECK(refusal(R"({"model_max_length": 2})") ==
          "tokenizer_config.json: model_max_length leaves no room between begin and end");
    CHECK(refusal(R"({"model_max_length": "77"})") == "tokenizer_config.json: model_max_length must be a number");
    CHECK(refusal(R"({"model_max_length": 77, "pad_token": "[PAD]"})") ==
          "tokenizer_config.json: pad_token: the token '[PAD]' is not in vocab.json");
    CHECK(refusal(R"({"model_max_length": 77, "pad_token": {"content": ""}})") ==
          "tokenizer_config.json: pad_token is empty");
    CHECK(refusal(R"({"model_max_length": 77, "pad_token": 3})") ==
          "tokenizer_config.json: pad_token must be a string");
    CHECK(refusal(R"({"model_max_length": 77, "pad_token": {"content": "a", "single_word": true}})") ==
          "tokenizer_config.json: pad_token.single_word is true, which is not supported");
    CHECK(refusal(R"({"model_max_length": 77, "padding_side": "left"})") ==
          "tokenizer_config.json: padding_side is 'left'; it must be one of right");
    CHECK(refusal(R"({"model_max_length": 77, "do_lower_case": false})") ==
          "tokenizer_config.json: do_lower_case is false, which CLIP's tokenizer does not support");
    CHECK(refusal(R"({"model_max_length": 77, "added_tokens_decoder": {"x": {"content": "a"}}})") ==
          "tokenizer_config.json: added_tokens_decoder has the field 'x', which is not an id");
    CHECK(refusal(R"({"model_max_length": 77, "added_tokens_decoder": {"5": {"content": "a"}}})") ==
          "tokenizer_config.json: added_tokens_decoder.5: the token 'a' has the id 5, but 0 in vocab.json");
    CHECK(refusal(R"({"model_max_length": 77, "additional_special_tokens": ["<cat>"]})") ==
          "tokenizer_config.json: additional_special_tokens[0]: the token '<cat>' is not in vocab.json");
}
