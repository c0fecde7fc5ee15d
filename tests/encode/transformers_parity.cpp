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

} // namespace

TEST_CASE("tokenizers equal transformers' on 2,000 texts") {
    const pulse::test::scratch folder{};
    const std::string command = "'" PULSE_TEST_PYTHON "' -B '" PULSE_TEST_TRANSFORMERS_IDS "' '" +
                                folder.path.string() + "' '" PULSE_TEST_PYTHON_PACKAGES "'";
    const int status = std::string{PULSE_TEST_PYTHON}.empty() ? 77 << 8 : std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        return pulse::test::skip("no python3 with transformers, sentencepiece and open_clip_torch");
    }
    REQUIRE(WEXITSTATUS(status) == 0);

    const std::vector<std::string> texts = texts_of(folder.path);
    REQUIRE(texts.size() == 2000);
    for (const std::string name : {"sd15", "sd2", "added", "bert", "bert_cased", "bert_plain", "t5", "t5_old", "mt5"}) {
        CAPTURE(name);
        const int length = std::stoi(bytes_of(folder.path / (name + ".length")));
        const auto tokenizer = pulse::encode::read_tokenizer(folder.path / name);
        CHECK(tokenizer->length() == length);
        reader expected{bytes_of(folder.path / (name + ".ids"))};
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
}
