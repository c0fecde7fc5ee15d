#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/wait.h>

#include <doctest/doctest.h>

#include <pulse/encode/tokenizer_folder.hpp>

#include <io/scratch.hpp>
#include <support/skip.hpp>

namespace {

using pulse::test::bytes_of;
namespace fs = std::filesystem;

/// Takes bytes from the front of a file's content.
struct reader {
    std::string bytes;
    std::size_t at = 0;

    [[nodiscard]] bool ended() const { return at == bytes.size(); }
    [[nodiscard]] std::int32_t number() {
        std::int32_t value = 0;
        std::memcpy(&value, bytes.substr(at, 4).data(), 4);
        at += 4;
        return value;
    }
    [[nodiscard]] std::vector<std::int32_t> numbers(int count) {
        std::vector<std::int32_t> all{};
        for (int i = 0; i != count; ++i) { all.push_back(number()); }
        return all;
    }
    [[nodiscard]] std::string text() {
        const auto size = static_cast<std::size_t>(number());
        at += size;
        return bytes.substr(at - size, size);
    }
};

std::vector<std::string> texts_of(const fs::path& folder) {
    reader file{bytes_of(folder / "texts")};
    std::vector<std::string> texts{};
    while (!file.ended()) { texts.push_back(file.text()); }
    return texts;
}

/// Runs a script on the folder with the packages that it compares with; false if one is missing.
bool run(const std::string& script, const fs::path& folder, const std::string& packages) {
    const std::string command = "'" PULSE_TEST_PYTHON "' '" + script + "' '" + folder.string() + "' '" + packages + "'";
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    REQUIRE((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    return WEXITSTATUS(status) == 0;
}

/// Checks that the folder's tokenizer gives each text the ids written beside it.
void check(const fs::path& folder, const std::string& name, const std::vector<std::string>& texts) {
    CAPTURE(name);
    const int length = std::stoi(bytes_of(folder / (name + ".length")));
    const auto tokenizer = pulse::encode::read_tokenizer(folder / name);
    CHECK(tokenizer->length() == length);
    reader expected{bytes_of(folder / (name + ".ids"))};
    int differ = 0;
    for (const std::string& text : texts) {
        pulse::encode::encoded_text want{.ids = expected.numbers(length), .mask = expected.numbers(length)};
        want.cut = expected.number();
        const pulse::encode::encoded_text got = (*tokenizer)(text);
        if (got == want) { continue; }
        if (++differ <= 3) {
            CAPTURE(text);
            CHECK(got.ids == want.ids);
            CHECK(got.mask == want.mask);
            CHECK(got.cut == want.cut);
        }
    }
    CHECK(differ == 0);
    CHECK(expected.ended());
}

} // namespace

TEST_CASE("tokenizers equal transformers' on 2,000 texts, of its old files and of the newest") {
    const pulse::test::scratch folder{};
    if (!run(PULSE_TEST_TRANSFORMERS_IDS, folder.path, PULSE_TEST_PYTHON_PACKAGES)) {
        return pulse::test::skip("no python3 with transformers, sentencepiece and open_clip_torch");
    }
    const std::vector<std::string> texts = texts_of(folder.path);
    REQUIRE(texts.size() == 2000);
    for (const char* name : {"sd15", "sd2", "added", "bert", "bert_cased", "bert_plain", "t5", "t5_old", "mt5"}) {
        check(folder.path, name, texts);
    }
    if (!run(PULSE_TEST_TRANSFORMERS_JSON_IDS, folder.path, PULSE_TEST_PYTHON_NEWEST_PACKAGES)) {
        return pulse::test::skip("no python3 with transformers 5 and sentencepiece");
    }
    for (const char* name :
         {"sd15_json", "sd2_json", "added_json", "sd15_more_json", "bert_json", "bert_cased_json", "bert_plain_json",
          "bert_more_json", "t5_json", "t5_old_json", "t5_more_json", "mt5_json"}) {
        check(folder.path, name, texts);
    }
}
