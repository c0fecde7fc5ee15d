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

/// One row of metadata.jsonl or metadata.csv: a picture below the folder and, if given, its caption and its
/// conditioning image.
struct metadata_line {
    std::string file_name{};
    std::optional<std::string> text{};               ///< none: null, or an empty field of CSV
    std::optional<std::string> conditioning_image{}; ///< a file below the folder; none: not given

    [[nodiscard]] bool operator==(const metadata_line&) const = default;
};

/// Whether a path stays below the folder that it is relative to.
[[nodiscard]] inline bool stays_below(const std::filesystem::path& path) {
    return !path.empty() && !path.has_root_path() && path.has_filename() &&
           std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
}

/// No field of metadata or of a JSON caption is the caption; the message names the fields that exist.
struct caption_field_error : input_error {
    using input_error::input_error;
};

/// Which of `fields` is the caption: `wanted`; if that is empty, `text`, else `caption`, else `prompt`. Throws
/// caption_field_error, which begins with `place`, when there is none.
[[nodiscard]] PULSE_PICTURES_INLINE std::string caption_field(const std::vector<std::string>& fields,
                                                              const std::string& wanted, const std::string& place);

/// Reads metadata.jsonl: each line is a JSON object with `file_name`, the caption in the field `column` (empty: as
/// caption_field chooses on the first line) and optionally the conditioning image in `conditioning_image` or
/// `conditioning_image_file_name`; other fields are ignored. Without `conditioning`, an entry that names no file is
/// ignored, too. Throws input_error naming `source`, the line and the field.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata(std::string_view text,
                                                                              std::string_view source,
                                                                              std::string column = {},
                                                                              bool conditioning = true);

/// Reads metadata.csv (csv_reader). The first row names the columns: `file_name`, the caption's (`column`, or as
/// caption_field chooses) and optionally the conditioning image's, as in metadata.jsonl. Throws input_error naming
/// `source`, the line and the column.
[[nodiscard]] PULSE_PICTURES_INLINE std::vector<metadata_line> parse_metadata_csv(std::string_view text,
                                                                                  std::string_view source,
                                                                                  const std::string& column = {},
                                                                                  bool conditioning = true);

/// The caption in a JSON object beside a picture: the field `column`, or as caption_field chooses. Throws input_error,
/// which begins with `source`.
[[nodiscard]] PULSE_PICTURES_INLINE std::string parse_caption_json(std::string_view text, const std::string& source,
                                                                   const std::string& column = {});

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/metadata.ipp> // IWYU pragma: keep
#endif
