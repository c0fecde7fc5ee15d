#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/data/picture_names.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// The first folder of a relative path; empty for a file that is in none.
[[nodiscard]] inline std::string_view first_folder(std::string_view name) {
    const std::size_t slash = name.find('/');
    return slash == std::string_view::npos ? std::string_view{} : name.substr(0, slash);
}

/// The files of a folder and its subfolders that matter to captioned pictures, as relative paths sorted bytewise.
/// Hidden files are skipped, and no folder is read twice, whatever links lead to it.
class folder_files {
public:
    std::vector<std::string> pictures{};
    std::vector<std::string> captions{}; ///< *.txt, *.caption, *.json
    std::vector<std::string> metadata{}; ///< metadata.jsonl, metadata.csv, metadata.parquet
    std::vector<std::string> archives{}; ///< *.tar
    std::vector<std::string> packed{};   ///< *.tgz, *.tar.*
    std::vector<std::string> unread{};   ///< see names_unread
    std::uint64_t folders_again{};

    /// Throws input_error for a path that is not a folder or cannot be read.
    explicit folder_files(const std::filesystem::path& folder) {
        std::error_code ignored;
        if (!std::filesystem::is_directory(folder, ignored)) {
            throw input_error('\'' + one_line(folder.string()) + "' is not a folder");
        }
        try {
            walk(folder, {});
        } catch (const std::filesystem::filesystem_error& fault) {
            throw input_error('\'' + one_line(fault.path1().string()) + "' cannot be read: " + fault.code().message());
        }
        for (auto* names : lists()) { std::sort(names->begin(), names->end()); }
    }

    /// Keeps only the files in `train` where the folder, or the only folder in it, holds nothing but split folders.
    /// Returns the number of pictures and shards in each other split. Throws input_error, which begins with `data`,
    /// when several splits stand beside something else.
    std::map<std::string, std::uint64_t> keep_training_split(const std::string& data) {
        const auto is_split = [](const std::string& name) {
            constexpr std::array<std::string_view, 9> all{"train", "test", "testing",    "validation", "valid",
                                                          "val",   "dev",  "evaluation", "eval"};
            return detail::is_among(all, lower_case(name));
        };
        const auto folders_in = [&] {
            std::set<std::string> seen;
            for (const auto* names : {&pictures, &metadata, &archives}) {
                for (const std::string& name : *names) { seen.emplace(top_folder(name)); }
            }
            // Files that are not read matter only in split folders.
            for (const std::string& name : unread) {
                if (std::string top{top_folder(name)}; is_split(top)) { seen.insert(std::move(top)); }
            }
            return seen;
        };
        // Repositories keep their splits in a folder of their own, such as `data`.
        std::set<std::string> seen = folders_in();
        while (seen.size() == 1 && !seen.begin()->empty() && !is_split(*seen.begin())) {
            base += *seen.begin() + '/';
            seen = folders_in();
        }
        const auto train = std::find_if(seen.begin(), seen.end(), [](auto& s) { return lower_case(s) == "train"; });
        const auto splits = std::count_if(seen.begin(), seen.end(), is_split);
        if (train == seen.end() || static_cast<std::size_t>(splits) != seen.size()) {
            if (train != seen.end() && splits > 1) {
                const auto other = std::find_if_not(seen.begin(), seen.end(), is_split);
                throw input_error(data + " holds the splits '" + base + *train + "' and others beside " +
                                  (other->empty() ? "pictures" : "'" + base + *other + '\'') +
                                  ": choose one folder, such as '" + base + *train + '\'');
            }
            base.clear();
            return {};
        }
        std::map<std::string, std::uint64_t> left;
        for (const auto* names : {&pictures, &archives}) {
            for (const std::string& name : *names) {
                if (top_folder(name) != *train) { ++left[std::string{top_folder(name)}]; }
            }
        }
        for (auto* names : lists()) {
            const bool keeps_top = names == &unread; // a message about missing captions names a table there
            std::erase_if(*names, [&](auto& s) {
                const bool below = s.starts_with(base) && !top_folder(s).empty();
                return below ? top_folder(s) != *train : !keeps_top;
            });
        }
        base += *train + '/';
        return left;
    }
    std::string base{}; ///< path, with a slash, of the folder whose subfolders matter; empty: the data's

    /// The folder directly below the base that holds a file; empty: none.
    [[nodiscard]] std::string_view top_folder(std::string_view name) const {
        return first_folder(name.starts_with(base) ? name.substr(base.size()) : std::string_view{});
    }

    /// The files beside a picture that may be its caption.
    [[nodiscard]] std::vector<std::string> captions_of(const std::string& picture) const {
        const std::string stem = std::string{split_ending(picture).stem} + '.';
        std::vector<std::string> found;
        for (auto at = std::lower_bound(captions.begin(), captions.end(), stem);
             at != captions.end() && at->compare(0, stem.size(), stem) == 0; ++at) {
            if (split_ending(*at).stem.size() + 1 == stem.size()) { found.push_back(*at); }
        }
        return found;
    }

private:
    [[nodiscard]] std::array<std::vector<std::string>*, 6> lists() {
        return {&pictures, &captions, &metadata, &archives, &packed, &unread};
    }

    void walk(const std::filesystem::path& folder, const std::string& below) {
        if (!walked_.insert(std::filesystem::canonical(folder).string()).second) {
            ++folders_again;
            return;
        }
        std::vector<std::string> folders;
        for (const auto& entry : std::filesystem::directory_iterator{folder}) {
            const std::string name = entry.path().filename().string();
            if (names_hidden(name)) { continue; }
            std::error_code dangling;
            if (entry.is_directory(dangling)) {
                folders.push_back(name);
            } else {
                take(below + name, lower_case(name));
            }
        }
        // The path by which a folder is reached must not depend on the order of a file system.
        std::sort(folders.begin(), folders.end());
        for (const std::string& name : folders) { walk(folder / name, below + name + '/'); }
    }
    void take(std::string path, const std::string& lower) {
        const std::string_view ending = split_ending(lower).ending;
        if (lower == "metadata.jsonl" || lower == "metadata.csv" || lower == "metadata.parquet") {
            metadata.push_back(std::move(path));
        } else if (names_picture(ending)) {
            pictures.push_back(std::move(path));
        } else if (names_caption(ending)) {
            captions.push_back(std::move(path));
        } else if (ending == "tar") {
            archives.push_back(std::move(path));
        } else if (ending == "tgz" || (lower.find(".tar.") != std::string::npos && names_packing(ending))) {
            packed.push_back(std::move(path));
        } else if (names_unread(ending)) {
            unread.push_back(std::move(path));
        }
    }

    std::set<std::string> walked_{};
};

} // namespace pulse::data
