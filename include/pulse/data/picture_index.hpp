#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// How a folder holds pictures and captions.
enum class picture_layout : std::uint8_t {
    metadata,      ///< metadata.jsonl or metadata.csv name pictures and give their captions
    sidecars,      ///< a.jpg with a.txt, a.caption or a.json
    class_folders, ///< dog/a.jpg: the folder's name is the label and, if asked for, the caption
    shards,        ///< WebDataset: tar archives of a.jpg with a.txt, a.caption or a.json
};

/// Where a caption is.
enum class caption_form : std::uint8_t {
    held,  ///< in the index
    plain, ///< a text file
    json,  ///< a field of a JSON object in a file
};

/// Where a picture and its caption are stored; known without decoding.
struct picture_entry {
    /// A range of bytes inside a shard.
    struct part {
        std::uint64_t offset{};
        std::uint64_t bytes{};
    };

    std::string name{};           ///< path of the picture below the folder, or inside its shard
    std::string text{};           ///< the caption, where the index holds it
    std::string conditioning{};   ///< path of its conditioning image below conditioning_folder; empty: none
    std::string caption_ending{}; ///< extension of the caption file beside the picture
    int label = -1;               ///< index of its class folder in `classes`; -1: none
    std::uint32_t repeats = 1;    ///< how often it occurs in an epoch
    std::uint32_t shard{};        ///< index in `shards`
    part picture{};               ///< in the shard
    part caption{};               ///< in the shard
    caption_form form = caption_form::held;
};

/// Files of a folder that are not read, counted by kind.
struct left_out_files {
    std::map<std::string, std::uint64_t> by_ending{}; ///< pictures and tables of formats that are not read
    std::uint64_t empty_shards{};                     ///< of 0 bytes, or without members
    std::uint64_t without_caption{};                  ///< pictures
    std::uint64_t of_other_samples{};                 ///< further pictures of samples, as a.seg.png beside a.png
    std::uint64_t folders_again{};                    ///< links to folders that are already read
    std::map<std::string, std::uint64_t> splits{};    ///< pictures and shards of folders beside `train`
};

/// The captioned pictures of a folder, in an order that depends only on names.
struct picture_index {
    std::filesystem::path folder{};
    std::filesystem::path conditioning_folder{}; ///< of conditioning images; `folder` where metadata name them
    picture_layout layout{};
    std::string caption_column{}; ///< field of JSON captions; empty: as caption_field chooses
    std::vector<picture_entry> entries{};
    std::vector<std::string> classes{};             ///< class folders, sorted
    std::vector<std::string> shards{};              ///< archives, sorted
    std::map<std::string, std::uint32_t> repeats{}; ///< by folder, where its name asks for more than one
    std::uint64_t captions_taken_as_empty{};        ///< pictures without a caption
    left_out_files left_out{};

    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries.size()); }

    /// The name of picture `i` in messages: its path in quotes.
    [[nodiscard]] std::string name(std::uint32_t i) const {
        const picture_entry& entry = entries.at(i);
        const std::string place = layout == picture_layout::shards ? shards[entry.shard] + ": " : std::string{};
        return '\'' + one_line((folder / (place + entry.name)).string()) + '\'';
    }

    /// The stored bytes of picture `i`. Throws input_error naming the file, also above `most` bytes.
    [[nodiscard]] std::string stored_bytes(std::uint32_t i, std::uint64_t most) const {
        const picture_entry& entry = entries.at(i);
        if (layout == picture_layout::shards) {
            const input_file file{folder / shards[entry.shard], name(i)};
            return file.text(entry.picture.offset, entry.picture.bytes, most);
        }
        const input_file file{folder / entry.name};
        return file.text(0, file.size(), most);
    }

    /// The caption of picture `i`. Throws input_error naming the file when there is none or it is not UTF-8.
    [[nodiscard]] std::string caption(std::uint32_t i) const {
        const picture_entry& entry = entries.at(i);
        if (entry.form == caption_form::held) { return entry.text; }
        if (layout == picture_layout::shards) {
            const input_file file{folder / shards[entry.shard], name(i)};
            return caption_in(entry, file.text(entry.caption.offset, entry.caption.bytes, longest_caption),
                              file.name());
        }
        const input_file file{folder / std::filesystem::path{entry.name}.replace_extension(entry.caption_ending)};
        return caption_in(entry, file.text(0, file.size(), longest_caption), file.name());
    }

private:
    [[nodiscard]] std::string caption_in(const picture_entry& entry, const std::string& text,
                                         const std::string& name) const {
        return entry.form == caption_form::json ? parse_caption_json(text, name, caption_column)
                                                : checked_caption(text, name);
    }
};

} // namespace pulse::data
