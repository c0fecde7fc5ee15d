#include <cstddef>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <pulse/core/error.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/text.hpp>

#include <support/check_both.hpp>

namespace {

/// The UTF-8 encoding of any number below 2^21, including invalid characters.
std::string encoded(unsigned code, int length) {
    if (length == 1) { return {static_cast<char>(code)}; }
    std::string text;
    for (int i = length - 1; i > 0; --i) {
        text.insert(0, 1, static_cast<char>(0x80U | (code >> (6 * (length - 1 - i)) & 0x3FU)));
    }
    const unsigned lead = 0xFFU << (8 - length) & 0xFFU;
    return text.insert(0, 1, static_cast<char>(lead | code >> (6 * (length - 1))));
}

std::string refusal_of_metadata(std::string_view text) {
    try {
        (void)pulse::data::parse_metadata(text, "m.jsonl");
    } catch (const pulse::input_error& fault) { return fault.what(); }
    return "read";
}

} // namespace

TEST_CASE("UTF-8 is every character in its shortest form and nothing else") {
    using pulse::data::valid_utf8;
    CHECK_BOTH(valid_utf8("") == 0);
    CHECK_BOTH(valid_utf8("a\xC3\xA9") == 3);
    CHECK_BOTH(valid_utf8("a\xC3") == 1);
    int wrong = 0;
    for (unsigned code = 0; code < 0x200000; code += code < 0x11000 ? 1 : 97) {
        for (int length = 1; length <= 4; ++length) {
            const unsigned most = length == 1 ? 0x7F : (1U << (5 * length + 1)) - 1;
            if (code > most) { continue; }
            const unsigned least = length == 1 ? 0 : length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
            const bool right = code >= least && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
            const std::string text = "ab" + encoded(code, length) + "c";
            wrong += valid_utf8(text) != (right ? text.size() : 2) ? 1 : 0;
            const std::string cut = text.substr(0, text.size() - 2);
            if (length > 1) { wrong += valid_utf8(cut) != 2 ? 1 : 0; }
        }
    }
    CHECK(wrong == 0);
    for (unsigned byte = 0x80; byte != 0x100; ++byte) {
        wrong += valid_utf8(std::string(1, static_cast<char>(byte))) != 0 ? 1 : 0;
    }
    CHECK(wrong == 0);
}

TEST_CASE("a name is one line of UTF-8") {
    using pulse::data::one_line;
    CHECK(one_line("a\xC3\xA9/b.png") == "a\xC3\xA9/b.png");
    CHECK(one_line("a\n\x1b[31m\x7f") == "a??[31m?");
    CHECK(one_line("\xFF"
                   "a\xC3\xE4\xB8") == "?a???");
}

TEST_CASE("a caption is what stands between white space, and is named when it is wrong") {
    using pulse::data::checked_caption;
    CHECK(checked_caption("\xEF\xBB\xBF a cat,\n sitting \r\n", "x").substr() == "a cat,\n sitting");
    CHECK(checked_caption(" \n", "x").empty());
    CHECK_THROWS_WITH_AS((void)checked_caption("a\xFFz", "'a.txt'"), "'a.txt': the caption is not UTF-8 from byte 1",
                         pulse::input_error);
    CHECK_THROWS_WITH_AS((void)checked_caption({"a\0", 2}, "'a.txt'"), "'a.txt': the caption holds a zero character",
                         pulse::input_error);
    CHECK_THROWS_AS((void)checked_caption(std::string(pulse::data::longest_caption + 1, 'a'), "x"), pulse::input_error);
}

TEST_CASE("metadata.jsonl gives pictures and texts in its order") {
    const auto lines = pulse::data::parse_metadata(
        "{\"file_name\": \"b/2.jpg\", \"text\": \"zwei \\u00e9\", \"url\": [1]}\r\n"
        "\n  \n{\"text\":\"\",\"file_name\":\"1.png\"}\n{\"text\":null,\"file_name\":\"0.png\"}",
        "m.jsonl");
    REQUIRE(lines.size() == 3);
    CHECK(lines[2] == pulse::data::metadata_line{"0.png", {}});
    CHECK(lines[0] == pulse::data::metadata_line{"b/2.jpg", "zwei \xC3\xA9"});
    CHECK(lines[1] == pulse::data::metadata_line{"1.png", ""});
}

TEST_CASE("a wrong line of metadata.jsonl is named with its field") {
    const std::string good = "{\"file_name\":\"1.jpg\",\"text\":\"a\"}\n";
    CHECK(refusal_of_metadata(good + "{\"file_name\":\"2.jpg\"}") == "m.jsonl: line 2: text is missing");
    CHECK(refusal_of_metadata("{\"file_name\":\"1.jpg\",\"label\":3}") ==
          "m.jsonl: line 1: has no caption field: expected 'text', 'caption' or 'prompt', found 'file_name', "
          "'label'");
    CHECK(refusal_of_metadata(good + "\n{\"file_name\":3,\"text\":\"\"}") ==
          "m.jsonl: line 3: file_name must be a string");
    CHECK(refusal_of_metadata("[]") == "m.jsonl: line 1: the object must be an object");
    CHECK(refusal_of_metadata("{\"file_name\":\"1.jpg\"").find("m.jsonl: line 1: not valid JSON") == 0);
    CHECK(refusal_of_metadata("{\"file_name\":\"1.jpg\",\"text\":\"\xFF\"}").find("m.jsonl: line 1: not valid JSON") ==
          0);
    CHECK(refusal_of_metadata("{\"file_name\":\"1\",\"text\":\"a\\u0000\"}") ==
          "m.jsonl: line 1: text: the caption holds a zero character");
    for (const char* outside : {"/etc/passwd", "../1.jpg", "a/../../1.jpg", "", "a/"}) {
        CHECK(refusal_of_metadata(std::string{"{\"text\":\"\",\"file_name\":\""} + outside + "\"}")
                  .find("m.jsonl: line 1: file_name is") == 0);
    }
}
