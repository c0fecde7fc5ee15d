#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/caption_choice.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/data/tar.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// A picture of a shard and the members that may be its caption.
struct shard_sample {
    std::optional<tar_member> picture{};
    std::vector<caption_file> captions{};
};

/// The pictures of a shard in its order. Members whose names are equal up to the last dot form one sample, wherever
/// they stand. A picture without captions whose name continues another picture's after a dot, as a.seg.png beside
/// a.jpg, belongs to that one's sample and is left out. Throws input_error for two pictures in one sample.
[[nodiscard]] inline std::vector<shard_sample> samples_of_shard(const input_file& file, left_out_files& left_out) {
    std::vector<shard_sample> samples;
    std::unordered_map<std::string, std::size_t> by_key;
    const std::vector<tar_member> members = read_tar(file);
    if (members.empty()) { ++left_out.empty_shards; }
    for (const tar_member& member : members) {
        if (names_hidden(std::string_view{member.name}.substr(member.name.rfind('/') + 1)) ||
            member.name.find("__MACOSX/") == 0) {
            continue;
        }
        const split_name name = split_ending(member.name);
        const std::string ending = lower_case(name.ending);
        if (!names_picture(ending) && !names_caption(ending)) {
            if (names_unread(ending)) { ++left_out.by_ending['.' + ending]; }
            continue;
        }
        const std::size_t place = by_key.emplace(name.stem, samples.size()).first->second;
        if (place == samples.size()) { samples.emplace_back(); }
        shard_sample& sample = samples[place];
        if (names_caption(ending)) {
            sample.captions.push_back({member.name, {member.offset, member.bytes}});
        } else if (sample.picture) {
            throw input_error(file.name() + ": '" + one_line(sample.picture->name) + "' and '" + one_line(member.name) +
                              "' are two pictures of one sample");
        } else {
            sample.picture = member;
        }
    }

    const auto is_of_other = [&](std::string_view name) {
        const std::size_t base = name.rfind('/') + 1; // 0 without a folder
        std::string_view key = split_ending(name).stem;
        for (std::size_t dot = key.rfind('.'); dot != std::string_view::npos && dot > base; dot = key.rfind('.')) {
            key = key.substr(0, dot);
            const auto found = by_key.find(std::string{key});
            if (found != by_key.end() && samples[found->second].picture) { return true; }
        }
        return false;
    };
    std::vector<shard_sample> pictures;
    for (shard_sample& sample : samples) {
        if (!sample.picture) { continue; }
        if (sample.captions.empty() && is_of_other(sample.picture->name)) {
            ++left_out.of_other_samples;
            continue;
        }
        pictures.push_back(sample);
    }
    return pictures;
}

} // namespace pulse::data
