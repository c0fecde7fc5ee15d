#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <pulse/encode/tokenizer_bert.hpp>
#include <pulse/encode/tokenizer_clip.hpp>
#include <pulse/encode/tokenizer_folder.hpp>
#include <pulse/encode/tokenizer_settings.hpp>

#include "reader.hpp"

namespace {

using namespace pulse::encode;

/// Makes a tokenizer that tokenizes a text. Either may fail with an error that names a file or the text.
template <class Make>
void feed(const Make& make, const std::string& text) {
    constexpr std::array<std::string_view, 8> named{
        "vocab.json: ", "tokenizer.json: ",        "merges.txt: ",
        "vocab.txt: ",  "tokenizer_config.json: ", "special_tokens_map.json: ",
        "the text: ",   "a tokenizer's length of "};
    try {
        const auto tokenizer = make();
        const encoded_text got = (*tokenizer)(text);
        const auto length = static_cast<std::size_t>(tokenizer->length());
        if (got.ids.size() != length || got.mask.size() != length || got.cut < 0) {
            pulse_fuzz::report("not of the tokenizer's length", text);
        }
        for (const std::int32_t id : got.ids) {
            if (id < 0 || id >= tokenizer->vocabulary_size()) { pulse_fuzz::report("an id of no token", text); }
        }
    } catch (const pulse::input_error& e) {
        const std::string_view why = e.what();
        for (const std::string_view name : named) {
            if (why.starts_with(name)) { return; }
        }
        pulse_fuzz::report("unclear refusal", why);
    }
}

} // namespace

/// A JSON object holds the files, so that a mutation leaves the others intact; any other input is itself the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string all(reinterpret_cast<const char*>(data), size);
    const nlohmann::json root = nlohmann::json::parse(all, nullptr, false);
    const auto file = [&](const char* name) -> std::optional<named_text> {
        if (!root.is_object()) { return named_text{all, name}; }
        const auto found = root.find(name);
        if (found == root.end()) { return {}; }
        return named_text{found->is_string() ? found->get<std::string>() : found->dump(), name};
    };
    const std::string text = file("text").value_or(named_text{}).text;
    const auto settings = [&]() -> tokenizer_settings {
        if (!root.is_object()) { return {}; }
        return {file("tokenizer_config.json"), file("special_tokens_map.json")};
    };
    constexpr int length = 9;
    const named_text tokens = file("vocab.json").value_or(named_text{"", "vocab.json"});
    const named_text merges = file("merges.txt").value_or(named_text{"", "merges.txt"});
    const named_text lines = file("vocab.txt").value_or(named_text{"", "vocab.txt"});
    const named_text json = file("tokenizer.json").value_or(named_text{"", "tokenizer.json"});
    feed([&] { return std::make_unique<clip_tokenizer>(tokens, merges, settings(), length); }, text);
    feed([&] { return std::make_unique<bert_tokenizer>(lines, settings()); }, text);
    feed([&] { return read_tokenizer_json(json, settings(), length); }, text);
    return 0;
}
