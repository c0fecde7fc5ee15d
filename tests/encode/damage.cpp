#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_bert.hpp>
#include <pulse/encode/tokenizer_clip.hpp>
#include <pulse/encode/tokenizer_folder.hpp>

#include <encode/vocabularies.hpp>
#include <io/scratch.hpp>

namespace {

using namespace pulse::encode;
using pulse::test::put;
using pulse::test::scratch;
using pulse::test::small_clip;

/// The error of a reader, or "".
std::string said(const std::function<void()>& read) {
    try {
        read();
    } catch (const pulse::input_error& e) { return e.what(); }
    return {};
}
std::string of_clip(const named_text& tokens, const named_text& merges) {
    return said([&] { (void)clip_tokenizer{tokens, merges, {}, 77}("abcd"); });
}

} // namespace

TEST_CASE("a vocabulary that is damaged is refused with file and token") {
    const auto refusal = [](const std::string& text) {
        return said([&] { (void)vocabulary::from_json({text, "v"}); });
    };
    CHECK(refusal(R"({"a": 0, "b": 7})").empty());
    CHECK(refusal(R"({"a": 0, "b": 0})") == "v: the id of 'b' is 0, which is also that of 'a'");
    CHECK(refusal(R"({"a": 0, "a": 1})") == "v: the field 'a' occurs twice");
    for (const char* id : {"-1", "2147483647", "18446744073709551615", "1.5", "\"1\"", "null", "[]", "1e400"}) {
        CAPTURE(id);
        const std::string why = refusal(std::string{R"({"a": 0, "bad": )"} + id + "}");
        CHECK(why.starts_with("v: "));
        CHECK((why == "v: the id of 'bad' must be an integer from 0 to 2^31 - 2" ||
               why.find("not valid JSON") != why.npos));
    }
    CHECK(refusal("[]") == "v: must be an object");
    CHECK(refusal("{}") == "v: the vocabulary is empty");
    CHECK(said([] { (void)vocabulary::from_lines({"", "v"}); }) == "v: the vocabulary is empty");
    CHECK(said([] {
              (void)vocabulary::from_lines({"a\nb\xc3\nc", "v"});
          }) == "v: line 2: is not UTF-8 from byte 1 (0xc3) on");
}

TEST_CASE("merges that are damaged are refused with file and line") {
    const small_clip clip{5, 0};
    const auto refusal = [&](const std::string& text) { return of_clip(clip.vocab_json(), {text, "m"}); };
    CHECK(refusal("#version: 0.2\n").empty());
    CHECK(refusal("#version: 0.2\r\n\r\n\n").empty());
    CHECK(refusal("") == "m: the file is empty");
    CHECK(refusal("a b\n") == "m: line 1 must begin with '#version'");
    CHECK(refusal("#version\na x\n") == "m: line 2 names 'x', which is not in vocab.json");
    CHECK(refusal("#version\na b\n") == "m: line 2 names 'ab', which is not in vocab.json");
    CHECK(refusal("#version\n\na b\n") == "m: line 2 is empty");
    for (const char* line : {"a", "a b c", "a  b", " a", "a ", " ", "a+b"}) {
        CAPTURE(line);
        CHECK(refusal("#version\n" + std::string{line}) ==
              "m: line 2 must be two tokens with a space between, not '" + std::string{line} + '\'');
    }
    const small_clip joined{5, 6};
    named_text twice = joined.merges_txt();
    twice.text += joined.merges[0].first + ' ' + joined.merges[0].second + '\n';
    CHECK(of_clip(joined.vocab_json(), twice) == "merges.txt: line 8 repeats an earlier merge");
    // the first bad line is reported even in a list longer than CLIP's
    std::string many = "#version\n";
    for (int i = 0; i != 48895; ++i) { many += "a b\n"; }
    CHECK(refusal(many) == "m: line 2 names 'ab', which is not in vocab.json");
}

TEST_CASE("files cut anywhere, or with bytes changed, are read or refused by name, and nothing else") {
    const small_clip clip{7, 12};
    const named_text tokens = clip.vocab_json();
    const named_text merges = clip.merges_txt();
    const named_text lines{"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n\xc3\xa9\n", "vocab.txt"};
    const named_text config{R"({"model_max_length": 9, "pad_token": {"content": "a", "normalized": true},
        "added_tokens_decoder": {"90": {"content": "<cat>", "special": false}}, "do_lower_case": true})",
                            "tokenizer_config.json"};
    int refused = 0;
    const auto check = [&](const named_text& file, const std::function<void(const named_text&)>& read) {
        const auto one = [&](const std::string& text) {
            const std::string why = said([&] { read({text, file.name}); });
            CAPTURE(text);
            CAPTURE(why);
            // a token missing from a file may be reported where it is needed
            CHECK((why.empty() || why.find(file.name) != why.npos));
            refused += why.empty() ? 0 : 1;
        };
        for (std::size_t size = 0; size <= file.text.size(); ++size) { one(file.text.substr(0, size)); }
        std::mt19937 draw{11};
        for (int i = 0; i != 2000; ++i) {
            std::string text = file.text;
            for (auto n = 1 + draw() % 3; n != 0; --n) { text[draw() % text.size()] = static_cast<char>(draw() % 256); }
            one(text);
        }
    };
    check(tokens, [&](const named_text& file) { (void)clip_tokenizer{file, merges, {}, 77}("abcd"); });
    check(merges, [&](const named_text& file) { (void)clip_tokenizer{tokens, file, {}, 77}("abcd"); });
    check(lines, [&](const named_text& file) { (void)bert_tokenizer{file, {}, 77}("ab \xc3\xa9"); });
    check(config, [&](const named_text& file) { (void)clip_tokenizer{tokens, merges, {file, {}}}("a<cat>b"); });
    CHECK(refused > 4000);
}

TEST_CASE("a folder is read as its config or its files say, and refused by name") {
    const small_clip clip{9, 8};
    const scratch folder{};
    const auto refusal = [&](std::optional<int> length = 77) {
        const std::string why = said([&] { (void)read_tokenizer(folder.path, length); });
        return why.starts_with(folder.path.string()) ? why.substr(folder.path.string().size()) : why;
    };
    const std::string none = ": has none of vocab.json with merges.txt, vocab.txt, spiece.model and tokenizer.json";
    CHECK(refusal() == none);
    put(folder.path / "tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
    CHECK(refusal() == none);
    std::filesystem::remove(folder.path / "tokenizer_config.json");
    put(folder.path / "merges.txt", clip.merges_txt().text);
    CHECK(refusal() == "/vocab.json: cannot be read");
    put(folder.path / "vocab.json", clip.vocab_json().text);
    CHECK(read_tokenizer(folder.path, 12)->length() == 12);
    CHECK(refusal(std::nullopt) == "/tokenizer_config.json: the file has no model_max_length, and none is given");
    CHECK(refusal(2) == "a tokenizer's length of 2 leaves no room between begin and end");

    put(folder.path / "tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizerFast", "model_max_length": 7})");
    CHECK(read_tokenizer(folder.path)->length() == 7);
    CHECK((*read_tokenizer(folder.path))("abcd") ==
          clip_tokenizer{clip.vocab_json(), clip.merges_txt(), {}, 7}("abcd"));
    put(folder.path / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
    CHECK(refusal() == "/tokenizer_config.json: tokenizer_class is 'GPT2Tokenizer'; it must be CLIPTokenizer, "
                       "BertTokenizer or T5Tokenizer");
    put(folder.path / "tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
    CHECK(refusal() == "/spiece.model: cannot be read");
    put(folder.path / "tokenizer_config.json", "[]");
    CHECK(refusal() == "/tokenizer_config.json: must be an object");
    std::filesystem::remove(folder.path / "tokenizer_config.json");
    put(folder.path / "added_tokens.json", "{}");
    CHECK(refusal() == "/added_tokens.json: has an old form; tokenizer_config.json must list added_tokens_decoder");
}

TEST_CASE("a file far larger than a tokenizer's is refused before it is read") {
    const scratch folder{};
    put(folder.path / "vocab.json", "");
    std::filesystem::resize_file(folder.path / "vocab.json", std::uintmax_t{1} << 36U);
    CHECK(said([&] { (void)read_tokenizer_file(folder.path / "vocab.json"); }) ==
          (folder.path / "vocab.json").string() + ": has 68719476736 bytes, too many for a tokenizer's file");
}
