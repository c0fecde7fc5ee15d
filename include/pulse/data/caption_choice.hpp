#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// A file that may be the caption of a picture.
struct caption_file {
    std::string name{};
    picture_entry::part place{}; ///< in a shard

    [[nodiscard]] caption_form form() const {
        return lower_case(split_ending(name).ending) == "json" ? caption_form::json : caption_form::plain;
    }
};

/// Chooses the caption among the files beside a picture: plain text before JSON, or JSON before plain text with
/// `json_first`; null without files. read(file) returns the bytes of a file. Throws input_error, which begins with
/// `place`, for two files of one kind whose bytes differ.
template <class Read>
[[nodiscard]] const caption_file* choose_caption(const std::vector<caption_file>& files, bool json_first,
                                                 const std::string& place, const Read& read) {
    const caption_form first = json_first ? caption_form::json : caption_form::plain;
    const auto is_first = [&](const caption_file& file) { return file.form() == first; };
    const bool any = std::any_of(files.begin(), files.end(), is_first);
    const caption_file* chosen = nullptr;
    for (const caption_file& file : files) {
        if (is_first(file) != any) { continue; }
        if (chosen != nullptr && read(*chosen) != read(file)) {
            throw input_error(place + ": '" + one_line(chosen->name) + "' and '" + one_line(file.name) +
                              "' are captions of one picture: it is not clear which one is meant");
        }
        chosen = chosen == nullptr ? &file : chosen;
    }
    return chosen;
}

} // namespace pulse::data
