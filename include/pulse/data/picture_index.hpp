#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/error.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/text.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::data {

/// How a folder holds pictures and captions.
enum class picture_layout : std::uint8_t {
    metadata,      ///< metadata.jsonl names pictures and says their texts
    sidecars,      ///< a.jpg and a.txt
    class_folders, ///< dog/a.jpg: the folder's name is the caption
    shards,        ///< WebDataset: tar archives of a.jpg with a.txt or a.json
};

/// Where a picture and its caption are. Nothing is decoded to know this.
struct picture_entry {
    /// Where bytes are inside a shard.
    struct part {
        std::uint64_t offset{};
        std::uint64_t bytes{};
    };

    std::string name{};           ///< of the picture below the folder, or inside its shard
    std::string text{};           ///< caption, where the index holds it (metadata, class folders)
    int label = -1;               ///< place of the class folder among all, sorted by name
    std::uint32_t shard{};        ///< among the index's shards
    part picture{};               ///< in the shard
    part caption{};               ///< in the shard
    bool caption_is_json = false; ///< of a shard: {"text": ...} or {"caption": ...}
};

/// The captioned pictures of a folder, in an order that depends on names alone.
struct picture_index {
    std::filesystem::path folder{};
    picture_layout layout{};
    std::vector<picture_entry> entries{};
    std::vector<std::string> classes{}; ///< class folders, sorted
    std::vector<std::string> shards{};  ///< archives, sorted

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
        if (layout == picture_layout::shards) {
            const input_file file{folder / shards[entry.shard]};
            const std::string text = file.text(entry.caption.offset, entry.caption.bytes, longest_caption);
            return entry.caption_is_json ? json_caption(text, name(i)) : checked_caption(text, name(i));
        }
        if (layout == picture_layout::sidecars) {
            const input_file file{folder / std::filesystem::path{entry.name}.replace_extension(".txt")};
            return checked_caption(file.text(0, file.size(), longest_caption), file.name());
        }
        return entry.text;
    }

private:
    [[nodiscard]] static std::string json_caption(const std::string& text, const std::string& name) {
        const nlohmann::json root = io::parse_json(text, name);
        const io::json_field fields{root, {name, "the caption's object", "a JSON caption"}};
        const bool short_key = fields.has("text") || !fields.has("caption");
        return checked_caption(fields[short_key ? "text" : "caption"].text(), name);
    }
};

} // namespace pulse::data
