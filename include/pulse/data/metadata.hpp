#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::data {

/// One row of metadata.jsonl or metadata.csv: a picture below the folder, its caption and its conditioning image, if it
/// has them.
struct metadata_line {
    std::string file_name{};
    std::optional<std::string> text{};               ///< none: null, or in CSV nothing, stands there
    std::optional<std::string> conditioning_image{}; ///< a file below the folder; none: nothing stands there

    [[nodiscard]] bool operator==(const metadata_line&) const = default;
};

/// Whether a path stays below the folder that it is relative to.
[[nodiscard]] inline bool stays_below(const std::filesystem::path& path) {
    return !path.empty() && !path.has_root_path() && path.has_filename() &&
           std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

/// None of the fields of metadata or of a JSON caption is the caption; the text names those that there are.
struct caption_field_error : input_error {
    using input_error::input_error;
};

/// Which of `fields` is the caption: `wanted`; where that is empty, `text`, else `caption`, else `prompt`. Throws
/// caption_field_error, which begins with `place`, when there is none.
[[nodiscard]] PULSE_PICTURES_INLINE std::string caption_field(const std::vector<std::string>& fields,
                                                              const std::string& wanted, const std::string& place);

/// Reads metadata.jsonl, a JSON object on each line with `file_name`, the caption in the field `column`, by default the
/// one of the first line (caption_field), and where there is one the conditioning image in `conditioning_image` or
/// `conditioning_image_file_name`; other fields are for others. Without `conditioning` one that names no file is passed
/// over. Throws input_error naming `source`, the line and the field.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata(std::string_view text,
                                                                              std::string_view source,
                                                                              std::string column = {},
                                                                              bool conditioning = true);

/// Reads metadata.csv (csv_reader), whose first row names the columns: `file_name`, the caption's, which is `column` or
/// as caption_field says, and that of conditioning images as in metadata.jsonl. Throws input_error naming `source`, the
/// line and the column.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata_csv(std::string_view text,
                                                                                  std::string_view source,
                                                                                  const std::string& column = {},
                                                                                  bool conditioning = true);

/// The caption of a JSON object that stands beside a picture: the field `column`, or as caption_field says. Throws
/// input_error, which begins with `source`.
[[nodiscard]] PULSE_PICTURES_INLINE std::string parse_caption_json(std::string_view text, const std::string& source,
                                                                   const std::string& column = {});

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/metadata.ipp> // IWYU pragma: keep
#endif
