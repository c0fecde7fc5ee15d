#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_clip.hpp>
#include <pulse/encode/tokenizer_folder.hpp>
#include <pulse/encode/tokenizer_unigram.hpp>

#include <encode/vocabularies.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::encode;
using nlohmann::json;
using pulse::test::small_clip;
using pointer = json::json_pointer;

const std::string text = "ab A\u030a '\u00e9!  <|endoftext|>[SEP]<extra_id_0> ba\u4e2dab";

encoded_text read(const std::string& file, const std::string& config = "{}") {
    return (*read_tokenizer_json({file, "tokenizer.json"}, pulse::test::with(config), 40))(text);
}
/// The error for a refused file, or "".
std::string refusal(const std::string& file, const std::string& config = "{}") {
    try {
        (void)read(file, config);
    } catch (const pulse::input_error& e) { return e.what(); }
    return {};
}
const std::vector<json>& files() {
    static const std::vector<json> all{pulse::test::clip_json(small_clip{7, 12}), pulse::test::bert_json(),
                                       pulse::test::t5_json()};
    return all;
}
bool one_line(const std::string& why) {
    return std::ranges::none_of(why, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}
/// Visits every value in a document.
void each(const json& value, const pointer& at, const std::function<void(const pointer&)>& visit) {
    visit(at);
    if (value.is_object()) {
        for (const auto& entry : value.items()) { each(entry.value(), at / entry.key(), visit); }
    } else if (value.is_array()) {
        for (std::size_t i = 0; i != value.size(); ++i) { each(value[i], at / i, visit); }
    }
}
/// Whether the error names the field, or, in vocabulary, merges or added tokens, its parent.
bool names(const std::string& why, pointer at) {
    while (!at.empty() && at.back().find_first_not_of("0123456789") == std::string::npos) { at.pop_back(); }
    const std::string path = at.to_string();
    for (const char* many : {"/added_tokens", "/model/vocab", "/model/merges"}) {
        if (path.starts_with(many)) {
            return why.find(std::string_view{many}.substr(path[1] == 'm' ? 7 : 1)) != why.npos;
        }
    }
    return at.empty() || why.find(at.back()) != why.npos;
}
/// For all changes of one value: either the error names file and field, or the ids stay the same.
template <class Change>
int refused_or_alike(const Change& change) {
    int refused = 0;
    for (const json& whole : files()) {
        const encoded_text want = read(whole.dump());
        each(whole, pointer{}, [&](const pointer& at) {
            for (const json& changed : change(whole, at)) {
                CAPTURE(at.to_string());
                CAPTURE(changed.dump());
                const std::string why = refusal(changed.dump());
                CAPTURE(why);
                if (why.empty()) {
                    CHECK(read(changed.dump()) == want);
                } else {
                    ++refused;
                    CHECK(why.find("tokenizer.json: ") != why.npos);
                    CHECK(one_line(why));
                    CHECK(names(why, at));
                }
            }
        });
    }
    return refused;
}

} // namespace

TEST_CASE("tokenizer.json makes of a text what vocabulary and merges of their own files make") {
    std::mt19937 draw{3};
    constexpr std::array<const char*, 9> parts{"a", "b", "c", "d", " ", "\u00e9", "'s", "<|endoftext|>", "!"};
    for (unsigned seed = 0; seed != 20; ++seed) {
        const small_clip clip{seed, 20};
        const clip_tokenizer old{clip.vocab_json(), clip.merges_txt(), {}, 40};
        json file = pulse::test::clip_json(clip);
        if (seed % 2 == 0) { // like tokenizers before 0.20
            for (json& merge : file["model"]["merges"]) {
                merge = merge[0].get<std::string>() + ' ' + merge[1].get<std::string>();
            }
        }
        const auto made = read_tokenizer_json({file.dump(), "t"}, pulse::test::with("{}"), 40);
        CHECK(made->vocabulary_size() == old.vocabulary_size());
        for (int i = 0; i != 50; ++i) {
            std::string drawn{};
            for (auto n = draw() % 30; n != 0; --n) { drawn += parts[draw() % parts.size()]; }
            CAPTURE(drawn);
            CHECK((*made)(drawn) == old(drawn));
        }
    }
}

TEST_CASE("tokenizer.json cut at any byte is refused in one line") {
    for (const json& whole : files()) {
        const std::string file = whole.dump();
        REQUIRE(refusal(file).empty());
        for (std::size_t size = 0; size != file.size(); ++size) {
            const std::string why = refusal(file.substr(0, size));
            CAPTURE(size);
            CAPTURE(why);
            CHECK(why.starts_with("tokenizer.json: not valid JSON"));
            CHECK(one_line(why));
        }
    }
}

TEST_CASE("tokenizer.json with a value of another type is refused by the field, or means the same") {
    const std::vector<json> values{nullptr, true, 1, "x", json::array(), json::object()};
    const int refused = refused_or_alike([&](const json& whole, const pointer& at) {
        std::vector<json> all{};
        for (const json& value : values) {
            const json& is = whole.at(at);
            if (value.type() == is.type() || (value.is_number() && is.is_number())) { continue; }
            // null means no normalizer
            if (value.is_null() && at.to_string() == "/normalizer") { continue; }
            all.push_back(whole);
            all.back()[at] = value;
        }
        return all;
    });
    CHECK(refused > 1000);
}

TEST_CASE("tokenizer.json without a field, or with one more, is refused by the field, or means the same") {
    const int missed = refused_or_alike([](const json& whole, const pointer& at) -> std::vector<json> {
        // removing a token gives a valid, different vocabulary
        if (at.empty() || !whole.at(at.parent_pointer()).is_object()) { return {}; }
        if (at.to_string().starts_with("/model/vocab/")) { return {}; }
        json less = whole;
        less[at.parent_pointer()].erase(at.back());
        return {less};
    });
    CHECK(missed > 100);
    for (const json& whole : files()) {
        for (const std::string name : {"id", "content", "single_word", "lstrip", "rstrip", "normalized"}) {
            json less = whole;
            less["added_tokens"][0].erase(name);
            CHECK(refusal(less.dump()) == "tokenizer.json: added_tokens[0]." + name + " is missing");
        }
        each(whole, pointer{}, [&](const pointer& at) {
            if (!whole.at(at).is_object() || (!at.empty() && at.back() == "vocab")) { return; }
            json more = whole;
            more[at]["novel"] = 1;
            CAPTURE(at.to_string());
            const std::string why = refusal(more.dump());
            const bool ignored = at.to_string().starts_with("/decoder");
            CHECK(why.empty() == ignored);
            CHECK((ignored || why.find("has the field 'novel', which a tokenizer does not define") != why.npos));
        });
    }
}

TEST_CASE("what tokenizer.json asks for and no tokenizer does is refused by name") {
    const auto why = [](std::size_t file, const char* at, const json& value, const std::string& config = "{}") {
        json changed = files()[file];
        changed[pointer{at}] = value;
        return refusal(changed.dump(), config);
    };
    CHECK(why(0, "/model/dropout", 0.1) == "tokenizer.json: model.dropout is 0.1; it must be null");
    CHECK(why(0, "/model/byte_fallback", true) == "tokenizer.json: model.byte_fallback is true; it must be false");
    CHECK(why(0, "/normalizer/normalizers/0/type", "NFKC") ==
          R"(tokenizer.json: normalizer.normalizers[0].type is "NFKC"; it must be "NFC")");
    CHECK(why(0, "/pre_tokenizer/pretokenizers/1/use_regex", false) ==
          "tokenizer.json: pre_tokenizer.pretokenizers[1].use_regex is false; it must be true");
    CHECK(why(0, "/post_processor/cls/1", 3) == "tokenizer.json: post_processor.cls[1] is 3; it must be 20");
    CHECK(why(0, "/model/type", "WordLevel") ==
          "tokenizer.json: model.type is 'WordLevel'; it must be BPE, WordPiece or Unigram");
    CHECK(why(0, "/model/merges/3", json::array({"a", "x"})) ==
          "tokenizer.json: model.merges[3] names 'x', which is not in tokenizer.json: model.vocab");
    CHECK(why(0, "/added_tokens/0/single_word", true) ==
          "tokenizer.json: added_tokens[0].single_word is true, which is not supported");
    CHECK(why(1, "/pre_tokenizer/type", "Whitespace") ==
          R"(tokenizer.json: pre_tokenizer.type is "Whitespace"; it must be "BertPreTokenizer")");
    CHECK(why(1, "/normalizer/lowercase", false) ==
          "tokenizer.json: normalizer.lowercase differs from do_lower_case of tokenizer_config.json");
    CHECK(why(1, "/normalizer/lowercase", false, R"({"do_lower_case": false})").empty());
    CHECK(why(1, "/model/max_input_chars_per_word", 50) ==
          "tokenizer.json: model.max_input_chars_per_word is 50; it must be 100");
    CHECK(why(2, "/model/byte_fallback", true) == "tokenizer.json: model.byte_fallback is true; it must be false");
    CHECK(why(2, "/model/vocab/4/0", "b") == "tokenizer.json: model.vocab has the piece 'b' twice");
    CHECK(why(2, "/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}) ==
          "tokenizer.json: normalizer.precompiled_charsmap has no map of characters");
    CHECK(why(2, "/normalizer/precompiled_charsmap", "AA?A") ==
          "tokenizer.json: normalizer.precompiled_charsmap is not Base64");
    CHECK(why(2, "/normalizer", nullptr).empty());
    const json cut = {{"direction", "Right"}, {"max_length", 9}, {"strategy", "LongestFirst"}, {"stride", 0}};
    for (std::size_t file = 0; file != files().size(); ++file) {
        CHECK(why(file, "/truncation", cut).empty());
        json left = cut;
        left["direction"] = "Left";
        CHECK(why(file, "/truncation", left) ==
              R"(tokenizer.json: truncation.direction is "Left"; it must be "Right")");
        CHECK(why(file, "/version", "2.0") == R"(tokenizer.json: version is "2.0"; it must be "1.0")");
    }
    // other statements of the config
    const std::string clip = files()[0].dump();
    CHECK(refusal(clip, R"({"pad_token": "a"})") ==
          "tokenizer_config.json: pad_token: added_tokens of tokenizer.json have no 'a'");
    CHECK(refusal(clip, R"({"extra_special_tokens": ["<cat>"]})") ==
          "tokenizer_config.json: extra_special_tokens[0]: added_tokens of tokenizer.json have no such token '<cat>'");
    CHECK(refusal(clip, R"({"extra_special_tokens": {}, "tokenizer_class": "TokenizersBackend"})").empty());
    CHECK(refusal(clip, R"({"tokenizer_class": "BertTokenizer"})") ==
          "tokenizer.json: model.type is 'BPE'; it must be one of WordPiece");
    CHECK(refusal(clip, R"({"tokenizer_class": "GPT2Tokenizer"})") ==
          "tokenizer_config.json: tokenizer_class is 'GPT2Tokenizer'; it must be CLIPTokenizer, BertTokenizer or "
          "T5Tokenizer");
    CHECK(refusal(clip, R"({"split_special_tokens": true})") ==
          "tokenizer_config.json: split_special_tokens is true, which is not supported");
}

TEST_CASE("a folder's own files are read before tokenizer.json, which is read where they are not") {
    const small_clip clip{9, 8};
    const pulse::test::scratch folder{};
    using pulse::test::put;
    put(folder.path / "tokenizer.json", files()[0].dump());
    put(folder.path / "tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer", "model_max_length": 40})");
    CHECK((*read_tokenizer(folder.path))(text) == read(files()[0].dump()));
    put(folder.path / "vocab.json", clip.vocab_json().text);
    put(folder.path / "merges.txt", clip.merges_txt().text);
    CHECK((*read_tokenizer(folder.path))(text) == clip_tokenizer{clip.vocab_json(), clip.merges_txt(), {}, 40}(text));
    // transformers 5 leaves old files in place when it saves over them.
    put(folder.path / "tokenizer_config.json",
        R"({"tokenizer_class": "CLIPTokenizer", "model_max_length": 40, "backend": "tokenizers"})");
    CHECK((*read_tokenizer(folder.path))(text) == read(files()[0].dump()));
}

TEST_CASE("a map of characters takes whole ones with their accents, and its shortest key") {
    const auto ids = [](const std::string& of) {
        return (*read_tokenizer_json({files()[2].dump(), "t"}, pulse::test::with("{}"), 40))(of);
    };
    CHECK(ids("Ab bA") == ids("ab ba"));
    // an accent joins its character as long as the two have fewer than 6 bytes
    CHECK(ids("A\u0301b") == ids("ab"));
    CHECK(ids("A\u0301\u0301\u0301b") == ids("a\u0301\u0301\u0301b"));
    CHECK(ids("ab\u3000\n ab") == ids("ab ab"));
    CHECK(ids("ab\u2581ab") == ids("ab ab"));
    CHECK(ids("\u2581ab") == ids("ab"));
}

TEST_CASE("a word gets the pieces of the greatest sum") {
    std::mt19937 draw{5};
    for (int round = 0; round != 200; ++round) {
        json vocab = json::array({json::array({"<unk>", 0.0})});
        for (int i = 0; i != 12; ++i) {
            std::string piece{};
            for (auto n = 1 + draw() % 4; n != 0; --n) { piece += static_cast<char>('a' + draw() % 3); }
            const bool there = std::ranges::any_of(vocab, [&](const json& p) { return p[0] == piece; });
            if (!there) { vocab.push_back(json::array({piece, -1.0 - static_cast<double>(draw() % 1000) / 64.0})); }
        }
        const unigram model{{vocab, {.source = "t", .what = "the file", .format = "a tokenizer"}}, 0};
        std::u32string word{};
        for (auto n = 1 + draw() % 10; n != 0; --n) { word.push_back(static_cast<char32_t>(U'a' + draw() % 3)); }
        double least = 0.0;
        for (const json& piece : vocab) { least = std::min(least, piece[1].get<double>()); }
        // tries every first piece, with the best split of the rest
        const std::function<double(std::string)> best = [&](const std::string& rest) {
            if (rest.empty()) { return 0.0; }
            double found = -std::numeric_limits<double>::infinity();
            bool single = false;
            for (const json& piece : vocab) {
                const std::string& start = piece[0].get_ref<const std::string&>();
                if (!rest.starts_with(start)) { continue; }
                single = single || start.size() == 1;
                found = std::max(found, piece[1].get<double>() + best(rest.substr(start.size())));
            }
            return single ? found : std::max(found, least - 10.0 + best(rest.substr(1)));
        };
        std::vector<std::int32_t> ids{};
        model.append(word, ids);
        double sum = 0.0;
        std::size_t known = 0;
        for (const std::int32_t id : ids) {
            if (id == 0) { continue; }
            sum += vocab[static_cast<std::size_t>(id)][1].get<double>();
            known += vocab[static_cast<std::size_t>(id)][0].get_ref<const std::string&>().size();
        }
        sum += static_cast<double>(word.size() - known) * (least - 10.0);
        CHECK(sum == best(utf8(word)));
    }
}
