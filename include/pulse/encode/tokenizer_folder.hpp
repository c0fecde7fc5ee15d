#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <pulse/encode/tokenizer.hpp>
#include <pulse/encode/tokenizer_bert.hpp>
#include <pulse/encode/tokenizer_clip.hpp>
#include <pulse/encode/tokenizer_settings.hpp>
#include <pulse/encode/tokenizer_t5.hpp>

namespace pulse::encode {

/// The tokenizer of a folder that diffusers or transformers wrote: vocab.json and merges.txt (CLIP), vocab.txt (BERT)
/// or spiece.model (T5, mT5), as tokenizer_config.json says, else as the files are.
///
/// Length: ids of each text; without it the config's model_max_length. Throws input_error naming file and line or
/// field; nothing is half loaded.
[[nodiscard]] inline std::unique_ptr<const tokenizer> read_tokenizer(const std::filesystem::path& folder,
                                                                     std::optional<int> length = {}) {
    const tokenizer_settings settings = tokenizer_settings::read(folder);
    const std::string name = settings.class_name();
    const auto file = [&](const char* of) { return read_tokenizer_file(folder / of); };
    const auto is = [&](const char* known, const char* sign) {
        return name == known || (name.empty() && std::filesystem::exists(folder / sign));
    };
    if (is("CLIPTokenizer", "merges.txt")) {
        return std::make_unique<clip_tokenizer>(file("vocab.json"), file("merges.txt"), settings, length);
    }
    if (is("BertTokenizer", "vocab.txt")) {
        return std::make_unique<bert_tokenizer>(file("vocab.txt"), settings, length);
    }
    if (is("T5Tokenizer", "spiece.model") || name == "MT5Tokenizer") {
        return std::make_unique<t5_tokenizer>(file("spiece.model"), settings, length);
    }
    if (name.empty()) { throw input_error(folder.string() + ": has none of merges.txt, vocab.txt and spiece.model"); }
    settings.config_field()["tokenizer_class"].fail("is '" + io::printable(name) +
                                                    "'; it must be CLIPTokenizer, BertTokenizer or T5Tokenizer");
}

} // namespace pulse::encode
