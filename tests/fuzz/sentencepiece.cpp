#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/encode/tokenizer_t5.hpp>

#include "reader.hpp"

/// Reads the input as a SentencePiece model; it may be refused by name, an accepted one tokenizes a text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const pulse::encode::named_text model{{reinterpret_cast<const char*>(data), size}, "input.json"};
    const std::string text = "a red c\u00e4t </s> \U0001F431";
    try {
        const pulse::encode::t5_tokenizer tokenizer{model, {}, 9};
        for (const std::int32_t id : tokenizer(text).ids) {
            if (id < 0 || id >= tokenizer.vocabulary_size()) { pulse_fuzz::report("an id of no token", text); }
        }
    } catch (const pulse::input_error& e) {
        // If the model lacks a token that settings ask for, the error names the settings' file first.
        if (std::string_view{e.what()}.find("input.json") == std::string_view::npos) {
            pulse_fuzz::report("unclear refusal", e.what());
        }
    }
    return 0;
}
