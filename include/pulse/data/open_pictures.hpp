#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

/// What the names of folders with pictures mean.
enum class folder_names : std::uint8_t {
    nothing,
    labels,   ///< classes; captions are not looked for
    captions, ///< classes and captions, if the data have no other captions
};

/// What to do about a picture without a caption.
enum class missing_caption : std::uint8_t {
    stop,  ///< missing_caption_error
    empty, ///< its caption is empty
    skip,  ///< it is left out
};

/// How captions are found.
struct caption_options {
    std::string column{}; ///< field of metadata and of JSON captions; empty: `text`, else `caption`, else `prompt`
    folder_names folders = folder_names::nothing;
    missing_caption on_missing = missing_caption::stop;
    /// Conditioning images are used, so metadata must name them correctly; otherwise wrong entries are ignored.
    bool conditioning = false;
};

/// A picture has no caption; the message names the picture.
struct missing_caption_error : input_error {
    using input_error::input_error;
};

/// A folder's name in kohya's convention: `10_cat` is `cat`, repeated ten times.
struct repeated_name {
    std::uint32_t repeats = 1;
    std::string_view name{};
};
/// A count has 1 to 3 digits, the first not 0, and an underscore and a name follow: years and numbers such as `01` are
/// not counts.
[[nodiscard]] PULSE_PICTURES_INLINE repeated_name read_repeats(std::string_view folder);

/// Index of the captioned pictures in a folder and its subfolders, whose layout is recognised; see picture_layout.
/// Where there are only split folders, `train` is read. Captions are never guessed: folder names are captions only if
/// `options` say so. With captions beside pictures or from folder names, pictures in `10_cat` occur ten times in an
/// epoch.
///
/// Throws input_error naming file and fault, also for a folder that could be read in two ways, a picture without a
/// caption (missing_caption_error), a bad line of metadata, and a damaged shard, which cannot be skipped like a bad
/// picture.
[[nodiscard]] PULSE_PICTURES_INLINE picture_index open_pictures(const std::filesystem::path& folder,
                                                                const caption_options& options = {});

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/open_pictures.ipp> // IWYU pragma: keep
#endif
