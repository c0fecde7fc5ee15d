#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/core/separate.hpp>
#include <pulse/data/csv.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/text.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::data {

PULSE_PICTURES_INLINE std::string caption_field(const std::vector<std::string>& fields, const std::string& wanted,
                                                const std::string& place) {
    const std::vector<std::string> choices =
        wanted.empty() ? std::vector<std::string>{"text", "caption", "prompt"} : std::vector<std::string>{wanted};
    for (const std::string& choice : choices) {
        if (std::find(fields.begin(), fields.end(), choice) != fields.end()) { return choice; }
    }
    std::string seen;
    for (const std::string& field : fields) {
        seen += (seen.empty() ? "" : ", ") + ('\'' + io::printable(field) + '\'');
        if (seen.size() > 200) {
            seen += ", ...";
            break;
        }
    }
    throw caption_field_error(place + ": has no caption field: expected " +
                              (wanted.empty() ? "'text', 'caption' or 'prompt'" : '\'' + io::printable(wanted) + '\'') +
                              ", found " + (seen.empty() ? "no fields" : seen));
}

namespace detail {

[[nodiscard]] inline bool names_file_below(const std::string& name) {
    return name.find('\0') == std::string::npos && stays_below(name);
}
[[nodiscard]] inline std::string no_file_below(const std::string& name) {
    return "is '" + io::printable(name) + "', which does not name a file below the folder";
}
[[nodiscard]] inline const std::string& file_below(const io::json_field& field) {
    if (!names_file_below(field.text())) { field.fail(no_file_below(field.text())); }
    return field.text();
}

/// Fields that may name a conditioning image; the first one present counts.
inline constexpr std::array<const char*, 2> conditioning_fields{"conditioning_image", "conditioning_image_file_name"};

[[nodiscard]] inline std::vector<std::string> names_of_fields(const nlohmann::json& object) {
    std::vector<std::string> names;
    if (object.is_object()) {
        for (const auto& entry : object.items()) { names.push_back(entry.key()); }
    }
    return names;
}

} // namespace detail

PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata(std::string_view text, std::string_view source,
                                                                std::string column, bool conditioning) {
    std::vector<metadata_line> lines;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) { continue; }
        const std::string place = std::string{source} + ": line " + std::to_string(number);
        const nlohmann::json root = io::parse_json(line, place);
        const io::json_field fields{root, {place, "the object", "metadata.jsonl"}};
        metadata_line read{.file_name = detail::file_below(fields["file_name"])};
        if (lines.empty()) { column = caption_field(detail::names_of_fields(root), column, place); }
        const io::json_field caption = fields[column.c_str()];
        if (!root.at(column).is_null()) { read.text = checked_caption(caption.text(), caption.place()); }
        const auto named =
            std::ranges::find_if(detail::conditioning_fields, [&](auto name) { return fields.has(name); });
        if (named != detail::conditioning_fields.end()) {
            const io::json_field image = fields[*named];
            const bool good = image.value().is_string() && detail::names_file_below(image.text());
            const bool none = image.value().is_null() || (image.value().is_string() && image.text().empty());
            if (good || (conditioning && !none)) { read.conditioning_image = detail::file_below(image); }
        }
        lines.push_back(std::move(read));
    }
    return lines;
}

PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata_csv(std::string_view text, std::string_view source,
                                                                    const std::string& column, bool conditioning) {
    csv_reader rows{text, source};
    const std::optional<csv_row> header = rows.next();
    if (!header) { return {}; }
    const auto place_of = [&](std::string_view name) {
        const auto found = std::find(header->fields.begin(), header->fields.end(), name);
        return static_cast<std::size_t>(found - header->fields.begin());
    };
    const std::string place = std::string{source} + ": line " + std::to_string(header->line);
    const std::string caption = caption_field(header->fields, column, place);
    const std::size_t name_at = place_of("file_name");
    const std::size_t text_at = place_of(caption);
    if (name_at == header->fields.size()) { rows.fail(header->line, "there is no column 'file_name'"); }
    std::vector<std::string> needed{"file_name", caption};
    const auto is_there = [&](const char* name) { return place_of(name) != header->fields.size(); };
    const auto image = std::ranges::find_if(detail::conditioning_fields, is_there);
    const bool has_image = image != detail::conditioning_fields.end();
    const std::size_t image_at = has_image ? place_of(*image) : 0;
    if (has_image && conditioning) { needed.emplace_back(*image); }
    for (const std::string& name : needed) {
        if (std::count(header->fields.begin(), header->fields.end(), name) > 1) {
            rows.fail(header->line, "the column '" + io::printable(name) + "' occurs twice");
        }
    }
    const auto file_below = [&](const csv_row& row, std::size_t at) {
        if (!detail::names_file_below(row.fields[at])) {
            rows.fail(row.line, header->fields[at] + ' ' + detail::no_file_below(row.fields[at]));
        }
        return row.fields[at];
    };
    std::vector<metadata_line> lines;
    while (std::optional<csv_row> row = rows.next()) {
        if (row->fields.size() != header->fields.size()) {
            rows.fail(row->line, "the row has " + std::to_string(row->fields.size()) + " fields, but there are " +
                                     std::to_string(header->fields.size()) + " columns");
        }
        metadata_line read{.file_name = file_below(*row, name_at)};
        const std::string& cell = row->fields[text_at];
        if (!cell.empty() || row->quoted[text_at]) { // an empty unquoted cell is CSV's null
            read.text = checked_caption(cell, std::string{source} + ": line " + std::to_string(row->line) + ": " +
                                                  io::printable(caption));
        }
        if (has_image &&
            (conditioning ? !row->fields[image_at].empty() : detail::names_file_below(row->fields[image_at]))) {
            read.conditioning_image = file_below(*row, image_at);
        }
        lines.push_back(std::move(read));
    }
    return lines;
}

PULSE_PICTURES_INLINE std::string parse_caption_json(std::string_view text, const std::string& source,
                                                     const std::string& column) {
    const nlohmann::json root = io::parse_json(text, source);
    const io::json_field fields{root, {source, "the caption's object", "a JSON caption"}};
    if (!root.is_object()) { fields.fail("must be an object"); }
    const std::string name = caption_field(detail::names_of_fields(root), column, source);
    return checked_caption(fields[name.c_str()].text(), source);
}

} // namespace pulse::data
