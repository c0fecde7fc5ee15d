#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sentencepiece_trainer.h>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_t5.hpp>

#include <encode/vocabularies.hpp>

namespace {

using namespace pulse::encode;
using pulse::test::with;

/// Training text for a small model.
class sentences : public sentencepiece::SentenceIterator {
public:
    [[nodiscard]] bool done() const override { return at_ == 400; }
    void Next() override {
        ++at_;
        make();
    }
    [[nodiscard]] const std::string& value() const override { return text_; }
    [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
    sentences() { make(); }

private:
    void make() {
        text_.clear();
        for (int word = 0; word != 8; ++word) {
            for (auto n = 1 + draw_() % 7; n != 0; --n) { text_ += static_cast<char>('a' + draw_() % 6); }
            text_ += ' ';
        }
    }
    std::mt19937 draw_{2};
    std::string text_{};
    int at_ = 0;
};

const named_text& model() {
    static const named_text trained = [] {
        sentences corpus{};
        named_text made{.name = "spiece.model"};
        const auto status = sentencepiece::SentencePieceTrainer::Train(
            "--vocab_size=60 --pad_id=0 --eos_id=1 --unk_id=2 --bos_id=-1 --num_threads=1 --minloglevel=2 "
            "--hard_vocab_limit=false",
            &corpus, &made.text);
        REQUIRE_MESSAGE(status.ok(), status.ToString());
        return made;
    }();
    return trained;
}

} // namespace

TEST_CASE("T5's ids end with one end, and extra ids come from the greatest down") {
    sentencepiece::SentencePieceProcessor plain{};
    REQUIRE(plain.LoadFromSerializedProto(model().text).ok());
    const int size = plain.GetPieceSize();
    const t5_tokenizer t5{model(), {}, 16};
    CHECK(t5.vocabulary_size() == size + 100);
    CHECK(t5_tokenizer{model(), with(R"({"extra_ids": 0})"), 16}.vocabulary_size() == size);

    std::vector<int> word{};
    REQUIRE(plain.Encode("abc fad", &word).ok());
    std::vector<std::int32_t> want{word.begin(), word.end()};
    want.push_back(1);
    const std::size_t count = want.size();
    want.resize(16, 0);
    const encoded_text made = t5("abc fad");
    CHECK(made.ids == want);
    CHECK(made.mask[count - 1] == 1);
    CHECK(made.mask[count] == 0);
    CHECK(t5("abc fad</s>") == made);

    const encoded_text extra = t5("<extra_id_0><extra_id_99>");
    CHECK(extra.ids[0] == size + 99);
    CHECK(extra.ids[1] == size);
    CHECK(extra.ids[2] == 1);
}

TEST_CASE("a SentencePiece model that is cut or changed is read or refused by name, and nothing else") {
    int refused = 0;
    const auto one = [&](const std::string& text) {
        try {
            (void)t5_tokenizer{{text, "spiece.model"}, {}, 16}("abc");
        } catch (const pulse::input_error& e) {
            ++refused;
            CHECK(std::string{e.what()}.find("spiece.model") != std::string::npos);
        }
    };
    const std::string& whole = model().text;
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 300) { one(whole.substr(0, size)); }
    CHECK(refused > 20);
    one("no model");
    CHECK_THROWS_AS((void)(t5_tokenizer{{"", "spiece.model"}, {}, 16}), pulse::input_error);
    CHECK_THROWS_WITH_AS((void)(t5_tokenizer{model(), with(R"({"legacy": false})"), 16}),
                         "tokenizer_config.json: legacy is false, which is not supported", pulse::input_error);
    CHECK_THROWS_WITH_AS((void)(t5_tokenizer{model(), with(R"({"extra_ids": 1000000000})"), 16}),
                         "tokenizer_config.json: extra_ids must be 0 to 10000", pulse::input_error);
}
