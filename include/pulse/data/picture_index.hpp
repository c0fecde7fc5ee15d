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
    metadata,      ///< metadata.jsonl or metadata.csv name pictures and say their texts
    sidecars,      ///< a.jpg and a.txt, a.caption or a.json
    class_folders, ///< dog/a.jpg: the folder's name is the label and, where that is asked for, the caption
    shards,        ///< WebDataset: tar archives of a.jpg with a.txt, a.caption or a.json
};

/// Where a caption is.
enum class caption_form : std::uint8_t {
    held,  ///< in the index
    plain, ///< a text file
    json,  ///< a field of an object in a file
};

/// Where a picture and its caption are. Nothing is decoded to know this.
struct picture_entry {
    /// Where bytes are inside a shard.
    struct part {
        std::uint64_t offset{};
        std::uint64_t bytes{};
    };

    std::string name{};           ///< of the picture below the folder, or inside its shard
    std::string text{};           ///< caption, where the index holds it
    std::string conditioning{};   ///< conditioning image of it, below the folder of these; empty: none
    std::string caption_ending{}; ///< of the file beside the picture that is its caption
    int label = -1;               ///< place of the class folder among all, sorted by name
    std::uint32_t repeats = 1;    ///< how often it stands in an epoch
    std::uint32_t shard{};        ///< among the index's shards
    part picture{};               ///< in the shard
    part caption{};               ///< in the shard
    caption_form form = caption_form::held;
};

/// What of a folder is not read, counted by kind.
struct left_out_files {
    std::map<std::string, std::uint64_t> by_ending{}; ///< pictures and tables of formats that are not read
    std::uint64_t empty_shards{};                     ///< of 0 bytes, or without members
    std::uint64_t without_caption{};                  ///< pictures
    std::uint64_t of_other_samples{};                 ///< pictures of a shard, as a.seg.png beside a.png
    std::uint64_t folders_again{};                    ///< to which a link leads once more
    std::map<std::string, std::uint64_t> splits{};    ///< pictures and shards of folders beside `train`
};

/// The captioned pictures of a folder, in an order that depends on names alone.
struct picture_index {
    std::filesystem::path folder{};
    std::filesystem::path conditioning_folder{}; ///< of conditioning images; `folder` where metadata name them
    picture_layout layout{};
    std::string caption_column{}; ///< field of JSON captions; empty: as caption_field says
    std::vector<picture_entry> entries{};
    std::vector<std::string> classes{};             ///< class folders, sorted
    std::vector<std::string> shards{};              ///< archives, sorted
    std::map<std::string, std::uint32_t> repeats{}; ///< of the pictures in a folder, where its name asks for several
    std::uint64_t captions_taken_as_empty{};        ///< pictures that have none
    left_out_files left_out{};

    [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries.size()); }

    /// How messages call picture `i`.
    [[nodiscard]] std::string name(std::uint32_t i) const {
        const picture_entry& entry = entries.at(i);
        const std::string place = layout == picture_layout::shards ? shards[entry.shard] + ": " : std::string{};
        return '\'' + one_line((folder / (place + entry.name)).string()) + '\'';
    }

    /// The bytes of picture `i` as they are stored. Throws input_error naming the file, also above `most` bytes.
    [[nodiscard]] std::string stored_bytes(std::uint32_t i, std::uint64_t most) const {
        const picture_entry& entry = entries.at(i);
        if (layout == picture_layout::shards) {
            return input_file{folder / shards[entry.shard]}.text(entry.picture.offset, entry.picture.bytes, most);
        }
        const input_file file{folder / entry.name};
        return file.text(0, file.size(), most);
    }

    /// The caption of picture `i`. Throws input_error naming the file when there is none or it is not UTF-8.
    [[nodiscard]] std::string caption(std::uint32_t i) const {
        const picture_entry& entry = entries.at(i);
        if (entry.form == caption_form::held) { return entry.text; }
        if (layout == picture_layout::shards) {
            const input_file file{folder / shards[entry.shard]};
            return caption_in(entry, file.text(entry.caption.offset, entry.caption.bytes, longest_caption), name(i));
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
