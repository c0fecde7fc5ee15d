#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace pulse::data {

/// `text` with ASCII letters in lower case.
[[nodiscard]] inline std::string lower_case(std::string_view text) {
    std::string lower{text};
    for (char& c : lower) { c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
    return lower;
}

/// A file's name split at its last dot.
struct split_name {
    std::string_view stem{};
    std::string_view ending{}; ///< empty: no dot after the last slash
};
[[nodiscard]] inline split_name split_ending(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    const std::size_t slash = name.rfind('/');
    if (dot == std::string_view::npos || (slash != std::string_view::npos && dot < slash)) { return {name, {}}; }
    return {name.substr(0, dot), name.substr(dot + 1)};
}

namespace detail {

template <std::size_t N>
[[nodiscard]] bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

} // namespace detail

/// Whether files with this ending, in lower case, are pictures that are decoded.
[[nodiscard]] inline bool names_picture(std::string_view ending) {
    constexpr std::array<std::string_view, 7> all{"jpg", "jpeg", "jfif", "png", "webp", "bmp", "gif"};
    return detail::is_among(all, ending);
}

/// Whether files with this ending, in lower case, are tables that may hold captions.
[[nodiscard]] inline bool names_table(std::string_view ending) {
    constexpr std::array<std::string_view, 6> all{"csv", "tsv", "jsonl", "parquet", "arrow", "xlsx"};
    return detail::is_among(all, ending);
}

/// Whether files with this ending, in lower case, are pictures or tables of captions that are not read.
[[nodiscard]] inline bool names_unread(std::string_view ending) {
    constexpr std::array<std::string_view, 20> all{"tif", "tiff", "avif", "heic", "heif", "jxl", "svg",
                                                   "ppm", "pgm",  "pbm",  "pnm",  "tga",  "hdr", "psd",
                                                   "ico", "jp2",  "exr",  "dds",  "dng",  "raw"};
    return detail::is_among(all, ending) || names_table(ending);
}

/// Whether files with this ending, in lower case, are packed.
[[nodiscard]] inline bool names_packing(std::string_view ending) {
    constexpr std::array<std::string_view, 4> all{"gz", "bz2", "xz", "zst"};
    return detail::is_among(all, ending);
}

/// Whether files with this ending, in lower case, are captions of pictures beside them.
[[nodiscard]] inline bool names_caption(std::string_view ending) {
    return ending == "txt" || ending == "caption" || ending == "json";
}

/// Whether a file or folder of this name is skipped: it is hidden, or macOS adds it to archives.
[[nodiscard]] inline bool names_hidden(std::string_view name) {
    return name.empty() || name.front() == '.' || name == "__MACOSX";
}

} // namespace pulse::data
