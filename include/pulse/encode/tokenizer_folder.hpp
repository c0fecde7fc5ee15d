#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <pulse/core/separate.hpp>
#include <pulse/encode/tokenizer.hpp>

namespace pulse::encode {

struct named_text;        // encode/tokenizer_settings.hpp
class tokenizer_settings; // same header

/// The tokenizer in tokenizer.json, of the class that tokenizer_config.json names, else of the class for its model.
[[nodiscard]] PULSE_PICTURES_INLINE std::unique_ptr<const tokenizer> read_tokenizer_json(
    const named_text& file, const tokenizer_settings& config, std::optional<int> length = {});

/// The tokenizer of a folder that diffusers or transformers wrote: vocab.json and merges.txt (CLIP), vocab.txt (BERT)
/// or spiece.model (T5, mT5), as tokenizer_config.json says, else by the files that exist. Reads tokenizer.json if
/// these are absent, or if transformers 5 wrote the config, which leaves older files beside it unchanged.
///
/// `length` is the number of ids of each text, by default the config's model_max_length. Throws input_error naming file
/// and line or field; nothing is left half loaded.
[[nodiscard]] PULSE_PICTURES_INLINE std::unique_ptr<const tokenizer> read_tokenizer(const std::filesystem::path& folder,
                                                                                    std::optional<int> length = {});

} // namespace pulse::encode

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/encode/tokenizer_folder.ipp> // IWYU pragma: keep
#endif
