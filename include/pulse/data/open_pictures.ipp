#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/caption_choice.hpp>
#include <pulse/data/file.hpp>
#include <pulse/data/folder_files.hpp>
#include <pulse/data/metadata.hpp>
#include <pulse/data/open_pictures.hpp>
#include <pulse/data/picture_index.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/data/shard_samples.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

PULSE_PICTURES_INLINE repeated_name read_repeats(std::string_view folder) {
    const std::size_t digits = std::min(folder.find_first_not_of("0123456789"), folder.size());
    if (digits == 0 || digits > 3 || folder.front() == '0' || digits + 1 >= folder.size() || folder[digits] != '_') {
        return {1, folder};
    }
    std::uint32_t repeats = 0;
    for (const char c : folder.substr(0, digits)) { repeats = repeats * 10 + static_cast<std::uint32_t>(c - '0'); }
    return {repeats, folder.substr(digits + 1)};
}

namespace detail {

/// Builds the index of one folder.
class picture_folder {
public:
    picture_folder(const std::filesystem::path& folder, const caption_options& options) :
        name_{'\'' + one_line(folder.string()) + '\''}, options_{options}, files_{folder} {
        index_.folder = folder;
        index_.caption_column = options.column;
    }

    [[nodiscard]] picture_index index() && {
        index_.left_out.splits = files_.keep_training_split(name_);
        index_.left_out.folders_again = files_.folders_again;
        for (const std::string& name : files_.unread) { count_by_ending(name); }
        if (!files_.packed.empty()) {
            throw input_error(shown(files_.packed.front()) +
                              " is compressed: shards must be plain .tar files, which can be read at any place");
        }
        if (!files_.metadata.empty() && options_.folders != folder_names::labels) {
            refuse_both("metadata", files_.metadata.front(), "captions beside pictures", first_sidecar());
            refuse_both("metadata", files_.metadata.front(), "shards", first(files_.archives));
            refuse_folder_captions(files_.metadata.front());
            read_metadata();
        } else if (!files_.archives.empty()) {
            refuse_both("shards", files_.archives.front(), "pictures", first(files_.pictures));
            refuse_folder_captions(files_.archives.front());
            read_shards();
        } else if (options_.folders == folder_names::nothing) {
            read_sidecars();
        } else {
            if (options_.folders == folder_names::captions) { refuse_folder_captions(first_sidecar()); }
            for (const std::string& table : files_.metadata) { count_by_ending(table); }
            read_class_folders();
        }
        if (index_.entries.empty()) {
            const std::uint64_t lacking = index_.left_out.without_caption;
            throw input_error(name_ + " holds no captioned pictures" +
                              (lacking != 0 ? ": " + std::to_string(lacking) + " without a caption are left out"
                               : files_.unread.empty() ? ""
                                                       : ": '" + one_line(files_.unread.front()) + "' is not read"));
        }
        std::uint64_t epoch = 0;
        for (const picture_entry& entry : index_.entries) { epoch += entry.repeats; }
        if (epoch >= std::numeric_limits<std::uint32_t>::max()) {
            throw input_error(name_ + " holds more than 2^32 - 2 pictures, counting repeats");
        }
        return std::move(index_);
    }

private:
    [[nodiscard]] std::string shown(const std::string& name) const {
        return '\'' + one_line((index_.folder / name).string()) + '\'';
    }
    [[nodiscard]] static std::string first(const std::vector<std::string>& names) {
        return names.empty() ? std::string{} : names.front();
    }
    void count_by_ending(const std::string& name) {
        ++index_.left_out.by_ending['.' + lower_case(split_ending(name).ending)];
    }
    /// The first file beside any picture that may be its caption; empty: none.
    [[nodiscard]] std::string first_sidecar() const {
        for (const std::string& picture : files_.pictures) {
            if (const auto found = files_.captions_of(picture); !found.empty()) { return found.front(); }
        }
        return {};
    }
    /// Throws if `of_other` names a file: the folder then holds both `one` and `other`.
    void refuse_both(const char* one, const std::string& of_one, const char* other, const std::string& of_other) const {
        if (!of_other.empty()) {
            throw input_error(name_ + " holds both " + one + " ('" + one_line(of_one) + "') and " + other + " ('" +
                              one_line(of_other) + "'): it is not clear which one is meant");
        }
    }
    void refuse_folder_captions(const std::string& seen) const {
        if (options_.folders == folder_names::captions && !seen.empty()) {
            throw input_error(name_ + ": folder names are captions only where there are no others, but there is '" +
                              one_line(seen) + '\'');
        }
    }

    /// Adds, skips or refuses a picture without a caption, as the options say.
    void add_without_caption(picture_entry entry, const std::string& why) {
        if (options_.on_missing == missing_caption::skip) {
            ++index_.left_out.without_caption;
            return;
        }
        if (options_.on_missing == missing_caption::stop) {
            const auto table = std::find_if(files_.unread.begin(), files_.unread.end(), [](const std::string& name) {
                return names_table(lower_case(split_ending(name).ending));
            });
            throw missing_caption_error(
                name_ + ": the picture '" + one_line(entry.name) + "' has no caption: " + why +
                (table == files_.unread.end() ? "" : "; '" + one_line(*table) + "' is not read"));
        }
        ++index_.captions_taken_as_empty;
        entry.form = caption_form::held;
        index_.entries.push_back(std::move(entry));
    }
    /// How often pictures in a folder of this name occur in an epoch; more than once is noted in the index.
    [[nodiscard]] std::uint32_t repeats_in(std::string_view folder) {
        const std::uint32_t repeats = read_repeats(folder).repeats;
        if (repeats != 1) { index_.repeats.insert_or_assign(std::string{folder}, repeats); }
        return repeats;
    }

    /// A picture that is only a conditioning image of others is not trained on.
    void read_metadata() {
        index_.layout = picture_layout::metadata;
        std::set<std::string> folders;
        struct said {
            std::optional<std::string> caption;
            std::string conditioning;
            std::string table;
        };
        std::map<std::string, said> named; // by picture
        std::set<std::string> conditioning;
        for (const std::string& name : files_.metadata) {
            const std::string folder = name.substr(0, name.rfind('/') + 1);
            if (lower_case(split_ending(name).ending) == "parquet") {
                throw input_error(shown(name) + " is not read: convert it to metadata.csv or metadata.jsonl, as with "
                                                "pandas.read_parquet(...).to_csv('metadata.csv', index=False)");
            }
            if (!folders.insert(folder).second) {
                throw input_error(shown(folder) + " holds both metadata.csv and metadata.jsonl: it is not clear "
                                                  "which one is meant");
            }
            const input_file file{index_.folder / name};
            constexpr std::uint64_t most = std::uint64_t{1} << 34U;
            const std::string text = file.text(0, file.size(), most);
            const bool csv = lower_case(split_ending(name).ending) == "csv";
            for (metadata_line& line :
                 csv ? parse_metadata_csv(text, file.name(), options_.column, options_.conditioning)
                     : parse_metadata(text, file.name(), options_.column, options_.conditioning)) {
                const auto below = [&](const std::string& path) {
                    return (std::filesystem::path{folder} / path).lexically_normal().string();
                };
                picture_entry entry{.name = below(line.file_name)};
                if (line.conditioning_image) {
                    entry.conditioning = below(*line.conditioning_image);
                    conditioning.insert(entry.conditioning);
                    index_.conditioning_folder = index_.folder;
                }
                // Already counted by its ending.
                if (std::binary_search(files_.unread.begin(), files_.unread.end(), entry.name)) { continue; }
                const auto [known, is_new] =
                    named.try_emplace(entry.name, said{line.text, entry.conditioning, file.name()});
                if (!is_new) {
                    const said& before = known->second;
                    const bool one_caption = before.caption == line.text;
                    if (one_caption && (!options_.conditioning || before.conditioning == entry.conditioning)) {
                        continue;
                    }
                    throw input_error(name_ + ": the picture '" + one_line(entry.name) + "' has two " +
                                      (one_caption ? "conditioning images" : "captions") + ", in " + before.table +
                                      " and in " + file.name() + ": it is not clear which one is meant");
                }
                if (!line.text) {
                    add_without_caption(std::move(entry), "it is empty in " + file.name());
                    continue;
                }
                entry.text = std::move(*line.text);
                index_.entries.push_back(std::move(entry));
            }
        }
        for (const std::string& picture : files_.pictures) {
            if (!named.contains(picture) && !conditioning.contains(picture)) {
                add_without_caption({.name = picture}, "the metadata do not name it");
            }
        }
    }

    void read_sidecars() {
        index_.layout = picture_layout::sidecars;
        const auto text_of = [&](const caption_file& one) {
            const input_file file{index_.folder / one.name};
            return file.text(0, file.size(), longest_caption);
        };
        for (const std::string& picture : files_.pictures) {
            picture_entry entry{.name = picture, .repeats = repeats_in(files_.top_folder(picture))};
            std::vector<caption_file> beside;
            for (std::string& name : files_.captions_of(picture)) { beside.push_back({std::move(name), {}}); }
            const caption_file* const chosen = choose_caption(beside, !options_.column.empty(), name_, text_of);
            if (chosen == nullptr) {
                add_without_caption(std::move(entry),
                                    "no .txt, .caption or .json of its name, and no metadata.jsonl or "
                                    "metadata.csv");
                continue;
            }
            entry.form = chosen->form();
            entry.caption_ending = split_ending(chosen->name).ending;
            index_.entries.push_back(std::move(entry));
        }
    }

    void read_class_folders() {
        index_.layout = picture_layout::class_folders;
        const bool captions = options_.folders == folder_names::captions;
        const std::string place = name_ + ": the name of a folder";
        for (const std::string& picture : files_.pictures) {
            const std::string folder{files_.top_folder(picture)};
            picture_entry entry{.name = picture};
            if (captions && folder.empty()) {
                add_without_caption(std::move(entry), "it is in no folder whose name could be its caption");
                continue;
            }
            // Pictures are sorted bytewise, so one folder may come between two parts of another.
            if (!folder.empty()) { index_.classes.push_back(folder); }
            if (captions) {
                entry.repeats = repeats_in(folder);
                entry.text = checked_caption(read_repeats(folder).name, place);
            }
            index_.entries.push_back(std::move(entry));
        }
        std::sort(index_.classes.begin(), index_.classes.end());
        index_.classes.erase(std::unique(index_.classes.begin(), index_.classes.end()), index_.classes.end());
        for (picture_entry& entry : index_.entries) {
            const std::string folder{files_.top_folder(entry.name)};
            if (folder.empty() && !captions && !index_.classes.empty()) {
                throw input_error(name_ + ": the picture '" + one_line(entry.name) +
                                  "' is in no folder whose name could be its class");
            }
            const auto found = std::lower_bound(index_.classes.begin(), index_.classes.end(), folder);
            entry.label = folder.empty() ? -1 : static_cast<int>(found - index_.classes.begin());
        }
    }

    void read_shards() {
        index_.layout = picture_layout::shards;
        index_.shards = files_.archives;
        for (std::uint32_t shard = 0; shard != index_.shards.size(); ++shard) {
            const input_file file{index_.folder / index_.shards[shard]};
            const auto text_of = [&](const caption_file& one) {
                return file.text(one.place.offset, one.place.bytes, longest_caption);
            };
            for (const shard_sample& sample : samples_of_shard(file, index_.left_out)) {
                picture_entry entry{.name = sample.picture->name,
                                    .shard = shard,
                                    .picture = {sample.picture->offset, sample.picture->bytes}};
                const caption_file* const chosen =
                    choose_caption(sample.captions, !options_.column.empty(), file.name(), text_of);
                if (chosen == nullptr) {
                    add_without_caption(std::move(entry), "no .txt, .caption or .json of its name in " + file.name());
                    continue;
                }
                entry.form = chosen->form();
                entry.caption = chosen->place;
                index_.entries.push_back(std::move(entry));
            }
        }
    }

    std::string name_;
    const caption_options& options_;
    folder_files files_;
    picture_index index_;
};

} // namespace detail

PULSE_PICTURES_INLINE picture_index open_pictures(const std::filesystem::path& folder, const caption_options& options) {
    return detail::picture_folder{folder, options}.index();
}

} // namespace pulse::data
