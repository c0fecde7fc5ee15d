#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/data/captioned_pictures.hpp>
#include <pulse/data/folder_report.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

namespace detail {

/// "1 picture", "2 pictures".
[[nodiscard]] inline std::string counted(std::uint64_t count, const std::string& one, const std::string& more) {
    return std::to_string(count) + ' ' + (count == 1 ? one : more);
}

/// Items separated by commas; of many, only the first.
[[nodiscard]] inline std::string listed(const std::vector<std::string>& items) {
    constexpr std::size_t most = 12;
    std::string all;
    for (std::size_t i = 0; i != items.size() && i != most; ++i) { all += (i == 0 ? "" : ", ") + items[i]; }
    return all + (items.size() > most ? ", and " + std::to_string(items.size() - most) + " more" : "");
}

} // namespace detail

PULSE_PICTURES_INLINE std::vector<std::string> folder_report(const captioned_pictures& pictures) {
    const picture_index& index = pictures.index();
    std::string read = "data: " + detail::counted(index.size(), "picture", "pictures");
    const std::string folders = detail::counted(index.classes.size(), "folder", "folders");
    switch (index.layout) {
    case picture_layout::metadata: read += ", captions of metadata"; break;
    case picture_layout::sidecars: read += ", captions beside them"; break;
    case picture_layout::shards:
        read += ", captions of " + detail::counted(index.shards.size(), "shard", "shards");
        break;
    case picture_layout::class_folders:
        read += (index.entries.front().text.empty() ? ", classes of " : ", captions by the names of ") + folders;
    }
    if (index.captions_taken_as_empty != 0) {
        read += ", " + std::to_string(index.captions_taken_as_empty) + " without one, which are taken as empty";
    }
    if (!index.repeats.empty()) {
        std::vector<std::string> each;
        for (const auto& [folder, times] : index.repeats) {
            each.push_back(one_line(folder) + ' ' + std::to_string(times) + " times");
        }
        read += "; repeated by name: " + detail::listed(each) + ", so that an epoch has " +
                std::to_string(pictures.epoch());
    }
    std::vector<std::string> lines{std::move(read)};

    const left_out_files& left = index.left_out;
    std::vector<std::string> kinds;
    for (const auto& [ending, count] : left.by_ending) { kinds.push_back(std::to_string(count) + ' ' + ending); }
    const auto add = [&](std::uint64_t count, const char* one, const char* more) {
        if (count != 0) { kinds.push_back(detail::counted(count, one, more)); }
    };
    add(left.empty_shards, "shard without members", "shards without members");
    add(left.without_caption, "picture without a caption", "pictures without a caption");
    add(left.of_other_samples, "picture of another's sample", "pictures of others' samples");
    add(left.folders_again, "link to a folder that is read already", "links to folders that are read already");
    for (const auto& [split, count] : left.splits) {
        kinds.push_back("the split " + one_line(split) + " (" + std::to_string(count) + ')');
    }
    if (!kinds.empty()) { lines.push_back("left out: " + detail::listed(kinds)); }
    return lines;
}

} // namespace pulse::data
