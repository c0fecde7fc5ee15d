#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/data/text.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::data {

/// One line of metadata.jsonl: a picture below the folder and its caption.
struct metadata_line {
    std::string file_name{};
    std::string text{};

    [[nodiscard]] bool operator==(const metadata_line&) const = default;
};

/// Whether a path stays below the folder that it is relative to.
[[nodiscard]] inline bool stays_below(const std::filesystem::path& path) {
    return !path.empty() && !path.has_root_path() && path.has_filename() &&
           std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

/// Reads metadata.jsonl, a JSON object with `file_name` and `text` on each line; other fields are for others. Throws
/// input_error naming `source`, the line and the field.
[[nodiscard]] inline std::vector<metadata_line> parse_metadata(std::string_view text, std::string_view source) {
    std::vector<metadata_line> lines;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) { continue; }
        const std::string place = std::string{source} + ": line " + std::to_string(number);
        const nlohmann::json root = io::parse_json(line, place);
        const io::json_field fields{root, {place, "the object", "metadata.jsonl"}};
        metadata_line read{fields["file_name"].text(), {}};
        if (read.file_name.find('\0') != std::string::npos || !stays_below(read.file_name)) {
            fields["file_name"].fail("is '" + io::printable(read.file_name) +
                                     "', which names no file below the folder");
        }
        read.text = checked_caption(fields["text"].text(), place + ": text");
        lines.push_back(std::move(read));
    }
    return lines;
}

} // namespace pulse::data
