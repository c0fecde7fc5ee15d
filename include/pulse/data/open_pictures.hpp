#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/tar.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

namespace detail {

[[nodiscard]] inline std::string lower_case(std::string text) {
    for (char& c : text) { c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
    return text;
}

/// What stands behind the last dot of a lower-case name.
[[nodiscard]] inline std::string_view ending_of(std::string_view name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? std::string_view{} : name.substr(dot + 1);
}

[[nodiscard]] inline bool names_picture(std::string_view ending) {
    return ending == "jpg" || ending == "jpeg" || ending == "jfif" || ending == "png" || ending == "webp" ||
           ending == "bmp" || ending == "gif";
}

/// What stands in a folder, hidden things left out, each list sorted by the names' bytes.
struct folder_list {
    std::vector<std::string> folders{};
    std::vector<std::string> pictures{};
    std::vector<std::string> texts{};    ///< *.txt
    std::vector<std::string> archives{}; ///< *.tar
    bool metadata{};

    explicit folder_list(const std::filesystem::path& folder) {
        for (const auto& entry : std::filesystem::directory_iterator{folder}) {
            const std::string name = entry.path().filename().string();
            if (name.front() == '.') { continue; }
            const std::string lower = lower_case(name);
            const std::string_view ending = ending_of(lower);
            if (entry.is_directory()) {
                folders.push_back(name);
            } else if (name == "metadata.jsonl") {
                metadata = true;
            } else if (names_picture(ending)) {
                pictures.push_back(name);
            } else if (ending == "txt") {
                texts.push_back(name);
            } else if (ending == "tar") {
                archives.push_back(name);
            } else if (ending == "tgz" || lower.find(".tar.") != std::string::npos) {
                throw input_error('\'' + one_line((folder / name).string()) +
                                  "' is packed: shards are plain .tar files, read at any place");
            }
        }
        for (auto* names : {&folders, &pictures, &texts, &archives}) { std::sort(names->begin(), names->end()); }
    }

    /// The first picture that has a caption beside it, or that has none; empty when there is no such picture.
    [[nodiscard]] std::string first_picture(bool captioned) const {
        for (const std::string& picture : pictures) {
            const auto caption = std::filesystem::path{picture}.replace_extension(".txt").string();
            if (std::binary_search(texts.begin(), texts.end(), caption) == captioned) { return picture; }
        }
        return {};
    }
};

/// Builds the index of one folder.
class picture_folder {
public:
    explicit picture_folder(const std::filesystem::path& folder) : name_{'\'' + one_line(folder.string()) + '\''} {
        index_.folder = folder;
    }

    [[nodiscard]] picture_index index() && {
        std::error_code ignored;
        if (!std::filesystem::is_directory(index_.folder, ignored)) { throw input_error(name_ + " is no folder"); }
        const folder_list all{index_.folder};
        const std::string captioned = all.first_picture(true);
        if (all.metadata) {
            refuse_both(!captioned.empty(), "metadata.jsonl", "captions beside pictures", captioned);
            refuse_both(!all.archives.empty(), "metadata.jsonl", "shards", first(all.archives));
            read_metadata();
        } else if (!all.archives.empty()) {
            refuse_both(!all.pictures.empty(), "shards", "pictures", first(all.pictures));
            read_shards(all.archives);
        } else if (!all.pictures.empty()) {
            refuse_folders_with_pictures(all);
            read_sidecars(all);
        } else {
            read_class_folders(all.folders);
        }
        if (index_.entries.empty()) { throw input_error(name_ + " holds no captioned pictures"); }
        if (index_.entries.size() >= std::numeric_limits<std::uint32_t>::max()) {
            throw input_error(name_ + " holds more than 2^32 - 2 pictures");
        }
        return std::move(index_);
    }

private:
    [[nodiscard]] static std::string first(const std::vector<std::string>& names) {
        return names.empty() ? std::string{} : names.front();
    }
    void refuse_both(bool both, const char* one, const char* other, const std::string& seen) const {
        if (both) {
            throw input_error(name_ + " holds both " + one + " and " + other + " ('" + one_line(seen) +
                              "'): which of them is meant is not clear");
        }
    }
    void refuse_folders_with_pictures(const folder_list& all) const {
        for (const std::string& folder : all.folders) {
            const folder_list inside{index_.folder / folder};
            refuse_both(!inside.pictures.empty(), "pictures", "folders of pictures",
                        folder + '/' + first(inside.pictures));
        }
    }

    void read_metadata() {
        index_.layout = picture_layout::metadata;
        const input_file file{index_.folder / "metadata.jsonl"};
        constexpr std::uint64_t most = std::uint64_t{1} << 34U;
        for (metadata_line& line : parse_metadata(file.text(0, file.size(), most), file.name())) {
            index_.entries.push_back({.name = std::move(line.file_name), .text = std::move(line.text)});
        }
    }

    void read_sidecars(const folder_list& all) {
        index_.layout = picture_layout::sidecars;
        const std::string alone = all.first_picture(false);
        if (!alone.empty()) {
            throw input_error(name_ + ": the picture '" + one_line(alone) +
                              "' has no caption: no .txt of its name, and " + "the folder no metadata.jsonl");
        }
        for (const std::string& picture : all.pictures) { index_.entries.push_back({.name = picture}); }
    }

    void read_class_folders(const std::vector<std::string>& folders) {
        index_.layout = picture_layout::class_folders;
        index_.classes = folders;
        for (std::size_t label = 0; label != folders.size(); ++label) {
            const std::string& folder = folders[label];
            const folder_list inside{index_.folder / folder};
            const std::string captioned = inside.first_picture(true);
            refuse_both(!captioned.empty(), "class folders", "captions beside their pictures",
                        folder + '/' + captioned);
            const std::string place = name_ + ": the class folder '" + one_line(folder) + '\'';
            if (!inside.folders.empty()) {
                throw input_error(place + " holds the folder '" + one_line(inside.folders.front()) +
                                  "', where pictures are expected");
            }
            if (inside.pictures.empty()) { throw input_error(place + " holds no pictures"); }
            const std::string text = checked_caption(folder, place);
            for (const std::string& picture : inside.pictures) {
                index_.entries.push_back(
                    {.name = folder + '/' + picture, .text = text, .label = static_cast<int>(label)});
            }
        }
    }

    /// Members in a row whose names are equal up to the first dot behind the folder are one sample.
    void read_shards(const std::vector<std::string>& shards) {
        index_.layout = picture_layout::shards;
        index_.shards = shards;
        for (std::uint32_t shard = 0; shard != shards.size(); ++shard) {
            const input_file file{index_.folder / shards[shard]};
            std::string key;
            picture_entry sample;
            bool has_caption = false;
            const auto finish = [&] {
                if (sample.name.empty()) { return; }
                if (!has_caption) {
                    throw input_error(file.name() + ": the picture '" + one_line(sample.name) +
                                      "' has no caption: no .txt or .json beside it");
                }
                index_.entries.push_back(std::move(sample));
            };
            for (const tar_member& member : read_tar(file)) {
                const std::size_t base = member.name.rfind('/') + 1; // 0 without a folder
                const std::size_t dot = std::min(member.name.find('.', base), member.name.size());
                if (dot == base) { continue; } // hidden
                if (member.name.compare(0, dot, key) != 0 || key.size() != dot) {
                    finish();
                    key = member.name.substr(0, dot);
                    sample = {.shard = shard};
                    has_caption = false;
                }
                const std::string ending = dot == member.name.size() ? "" : lower_case(member.name.substr(dot + 1));
                const picture_entry::part part{member.offset, member.bytes};
                if (names_picture(ending)) {
                    if (!sample.name.empty()) {
                        throw input_error(file.name() + ": '" + one_line(sample.name) + "' and '" +
                                          one_line(member.name) + "' are two pictures of one sample");
                    }
                    sample.name = member.name;
                    sample.picture = part;
                } else if (ending == "txt" || (ending == "json" && !has_caption)) {
                    has_caption = true;
                    sample.caption = part;
                    sample.caption_is_json = ending == "json";
                }
            }
            finish();
        }
    }

    std::string name_;
    picture_index index_;
};

} // namespace detail

/// Which captioned pictures a folder holds, its layout being recognised; see picture_layout. A text beside a JSON
/// caption comes before it. Throws input_error naming file and fault: also for a folder that could be read in two ways, a
/// picture without a caption, a wrong line of metadata.jsonl and a damaged shard, which no reader of one picture can skip.
[[nodiscard]] inline picture_index open_pictures(const std::filesystem::path& folder) {
    try {
        return detail::picture_folder{folder}.index();
    } catch (const std::filesystem::filesystem_error& fault) {
        throw input_error('\'' + one_line(fault.path1().string()) + "' cannot be read: " + fault.code().message());
    }
}

} // namespace pulse::data
