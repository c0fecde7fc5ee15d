#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_bert.hpp>
#include <pulse/encode/tokenizer_clip.hpp>
#include <pulse/encode/tokenizer_folder.hpp>
#include <pulse/encode/tokenizer_json.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_t5.hpp>
#include <pulse/encode/tokenizer_unigram.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::encode {

PULSE_PICTURES_INLINE std::unique_ptr<const tokenizer> read_tokenizer_json(const named_text& file,
                                                                           const tokenizer_settings& config,
                                                                           std::optional<int> length) {
    const tokenizer_json parsed{file};
    const tokenizer_settings settings = config.with(parsed.added(), file.name);
    const std::string name = config.class_name();
    const std::string& model = parsed.model_type();
    // transformers writes the backend's name where it has no class for the model
    const auto is = [&](const char* known, const char* type) {
        return name == known || ((name.empty() || name == "TokenizersBackend") && model == type);
    };
    if (is("CLIPTokenizer", "BPE")) { return std::make_unique<clip_tokenizer>(parsed, settings, length); }
    if (is("BertTokenizer", "WordPiece")) { return std::make_unique<bert_tokenizer>(parsed, settings, length); }
    if (is("T5Tokenizer", "Unigram") || name == "MT5Tokenizer") {
        return std::make_unique<unigram_tokenizer>(parsed, settings, length);
    }
    if (name.empty() || name == "TokenizersBackend") {
        parsed.root()["model"]["type"].fail("is '" + io::printable(model) + "'; it must be BPE, WordPiece or Unigram");
    }
    settings.refuse_class();
}

PULSE_PICTURES_INLINE std::unique_ptr<const tokenizer> read_tokenizer(const std::filesystem::path& folder,
                                                                      std::optional<int> length) {
    const tokenizer_settings settings = tokenizer_settings::read(folder);
    const std::string name = settings.class_name();
    const auto file = [&](const char* of) { return read_tokenizer_file(folder / of); };
    const auto has = [&](const char* of) { return std::filesystem::exists(folder / of); };
    const bool json = has("tokenizer.json");
    if (!json && !has("vocab.json") && !has("merges.txt") && !has("vocab.txt") && !has("spiece.model")) {
        throw input_error(folder.string() +
                          ": has none of vocab.json with merges.txt, vocab.txt, spiece.model and tokenizer.json");
    }
    if (json && settings.saved_by_transformers_5()) {
        return read_tokenizer_json(file("tokenizer.json"), settings, length);
    }
    const auto is = [&](const char* known, const char* sign) {
        return (name == known || name.empty()) && (has(sign) || (!json && name == known));
    };
    if (is("CLIPTokenizer", "merges.txt")) {
        return std::make_unique<clip_tokenizer>(file("vocab.json"), file("merges.txt"), settings, length);
    }
    if (is("BertTokenizer", "vocab.txt")) {
        return std::make_unique<bert_tokenizer>(file("vocab.txt"), settings, length);
    }
    if (is("T5Tokenizer", "spiece.model") || is("MT5Tokenizer", "spiece.model")) {
        return std::make_unique<t5_tokenizer>(file("spiece.model"), settings, length);
    }
    if (json) { return read_tokenizer_json(file("tokenizer.json"), settings, length); }
    if (name.empty()) { throw input_error((folder / "merges.txt").string() + ": is missing beside vocab.json"); }
    settings.refuse_class();
}

} // namespace pulse::encode
