#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/picture_index.hpp>

namespace pulse::data {

/// What the names of the folders are in which pictures are.
enum class folder_names : std::uint8_t {
    nothing,
    labels,   ///< classes; captions are not looked for
    captions, ///< classes and captions, of data without others
};

/// What is done about a picture without a caption.
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
    /// Conditioning images are read, so that what metadata say of them must be right; else what is wrong is passed
    /// over.
    bool conditioning = false;
};

/// A picture has no caption; the text names the picture.
struct missing_caption_error : input_error {
    using input_error::input_error;
};

/// A folder's name as trainers in kohya's manner read it: `10_cat` is `cat` ten times.
struct repeated_name {
    std::uint32_t repeats = 1;
    std::string_view name{};
};
/// A count is of 1 to 3 digits, the first not 0, with an underscore and a name behind: years and places in a list are
/// none.
[[nodiscard]] PULSE_PICTURES_INLINE repeated_name read_repeats(std::string_view folder);

/// Which captioned pictures a folder and those below it hold, the layout being recognised; see picture_layout. Where
/// there are but folders of splits, that of `train` is read. Captions are never guessed: names of folders are captions
/// only where `options` say so. With captions beside pictures or of folders, those in `10_cat` stand in an epoch ten
/// times.
///
/// Throws input_error naming file and fault: also for a folder that could be read in two ways, a picture without a
/// caption (missing_caption_error), a wrong line of metadata and a damaged shard, which no reader of one picture can
/// skip.
[[nodiscard]] PULSE_PICTURES_INLINE picture_index open_pictures(const std::filesystem::path& folder,
                                                                const caption_options& options = {});

} // namespace pulse::data

#ifndef PULSE_SEPARATE_PICTURES
#include <pulse/data/open_pictures.ipp> // IWYU pragma: keep
#endif
