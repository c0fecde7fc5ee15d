#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pulse/checkpoint/manifest.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

/// One checkpoint's folder within the folder of checkpoints: `step-00000012`, or `step-00000012.2` when a run reaches
/// that step again. It is complete when it has a manifest.
struct step_folder {
    std::filesystem::path path{};
    std::int64_t step{};
    bool complete{};
};

namespace detail {

[[nodiscard]] inline std::string padded(std::int64_t number, std::size_t digits) {
    std::string text = std::to_string(number);
    return std::string(text.size() < digits ? digits - text.size() : 0, '0') + text;
}

/// Whether the path exists; true also if that cannot be determined, since what is unknown must not be removed.
[[nodiscard]] inline bool may_exist(const std::filesystem::path& path) {
    std::error_code unused;
    return std::filesystem::symlink_status(path, unused).type() != std::filesystem::file_type::not_found;
}

/// The manifest's temporary name while it is written.
[[nodiscard]] inline std::string unfinished_manifest() { return std::string{"."} + manifest_name + ".tmp"; }

[[nodiscard]] inline std::string shard_name(std::size_t rank) {
    return "rank-" + padded(static_cast<std::int64_t>(rank), 4) + ".safetensors";
}

[[nodiscard]] inline bool is_ours(const std::string& name) {
    return name == manifest_name || name == unfinished_manifest() ||
           (name.starts_with("rank-") && name.ends_with(".safetensors"));
}

} // namespace detail

/// The checkpoints in a folder, complete or not, sorted by name. Throws input_error when the folder cannot be read.
[[nodiscard]] PULSE_INLINE std::vector<step_folder> list_checkpoints(const std::filesystem::path& root);

/// The complete checkpoint that was written last, even if an earlier one has a higher step: a run that went back
/// continues from there. Throws input_error when there is none, or naming the manifest that is damaged.
[[nodiscard]] PULSE_INLINE std::filesystem::path last_checkpoint(const std::filesystem::path& root);

/// Resolves `path`: itself if it is a checkpoint's folder or a file, else the last complete checkpoint in that folder.
/// Throws input_error naming `path` when there is none.
[[nodiscard]] PULSE_INLINE std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Throws input_error naming `path` unless a file or folder can be created there: the nearest existing parent folder
/// must be writable. Writes nothing.
PULSE_INLINE void require_place(const std::filesystem::path& path);

/// Creates a folder and its missing parents, durably: each survives a loss of power.
template <class Disk>
void make_durable_folder(const Disk& on, const std::filesystem::path& path) {
    std::error_code unused;
    if (path.empty() || std::filesystem::is_directory(path, unused)) { return; }
    const std::filesystem::path above = path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
    if (!path.has_filename()) { return make_durable_folder(on, above); } // "a/b/"
    make_durable_folder(on, above);
    if (!on.make_folder(path) && !std::filesystem::is_directory(path, unused)) {
        throw input_error("'" + path.string() + "' already exists and is not a folder");
    }
    on.sync_folder(above);
}

/// Creates the folder of a new checkpoint. Its name was never used before, so no file of another attempt can be
/// mistaken for one of this. Throws input_error when it cannot.
template <class Disk>
[[nodiscard]] std::filesystem::path make_step_folder(const Disk& on, const std::filesystem::path& root,
                                                     std::int64_t step) {
    const std::string name = "step-" + detail::padded(step, 8);
    std::filesystem::path folder = root / name;
    for (int attempt = 2; !on.make_folder(folder); ++attempt) {
        folder = root / (name + "." + std::to_string(attempt));
    }
    on.sync_folder(root);
    return folder;
}

/// Removes a checkpoint: the manifest first, so that a part of it never passes for the whole. Throws input_error naming
/// what could not be removed; a folder with any other file in it is left untouched.
template <class Disk>
void remove_checkpoint(const Disk& on, const std::filesystem::path& folder) {
    std::error_code fault;
    std::vector<std::filesystem::path> files;
    for (std::filesystem::directory_iterator at{folder, fault}, end; !fault && at != end; at.increment(fault)) {
        if (!detail::is_ours(at->path().filename().string())) {
            throw input_error("'" + at->path().string() + "' is not part of a checkpoint: its folder is kept");
        }
        files.push_back(at->path());
    }
    if (fault) { throw input_error("cannot read the folder '" + folder.string() + "': " + fault.message()); }
    const auto manifest = std::find(files.begin(), files.end(), folder / manifest_name);
    if (manifest != files.end()) {
        on.remove_file(*manifest);
        on.sync_folder(folder);
        files.erase(manifest);
    }
    for (const std::filesystem::path& file : files) { on.remove_file(file); }
    on.remove_folder(folder);
}

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/folder.ipp> // IWYU pragma: keep
#endif
