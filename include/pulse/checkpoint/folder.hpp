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

/// A checkpoint's folder inside the folder of checkpoints: `step-00000012`, or `step-00000012.2` when a run came to
/// that step once more. It is complete when it has a manifest.
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

/// Whether there is something of that name; also when nobody can say, for what is not known must not be removed.
[[nodiscard]] inline bool may_exist(const std::filesystem::path& path) {
    std::error_code unused;
    return std::filesystem::symlink_status(path, unused).type() != std::filesystem::file_type::not_found;
}

/// The manifest while it has another name.
[[nodiscard]] inline std::string unfinished_manifest() { return std::string{"."} + manifest_name + ".tmp"; }

[[nodiscard]] inline std::string shard_name(std::size_t rank) {
    return "rank-" + padded(static_cast<std::int64_t>(rank), 4) + ".safetensors";
}

[[nodiscard]] inline bool is_ours(const std::string& name) {
    return name == manifest_name || name == unfinished_manifest() ||
           (name.starts_with("rank-") && name.ends_with(".safetensors"));
}

} // namespace detail

/// The checkpoints of a folder, complete or not, by name. Throws input_error when the folder cannot be read.
[[nodiscard]] PULSE_INLINE std::vector<step_folder> list_checkpoints(const std::filesystem::path& root);

/// The complete checkpoint that was written last, also if it is of a lower step: a run that went back goes on from
/// where it is. Throws input_error when there is none, or naming the manifest that is damaged.
[[nodiscard]] PULSE_INLINE std::filesystem::path last_checkpoint(const std::filesystem::path& root);

/// What `path` stands for: itself when it is a checkpoint's folder or a file, the last complete one of a folder of
/// checkpoints. Throws input_error naming `path` when there is nothing.
[[nodiscard]] PULSE_INLINE std::filesystem::path find_checkpoint(const std::filesystem::path& path);

/// Throws input_error naming `path` unless a file or a folder may be made there: of the folders that it is to be in,
/// the nearest that exists can be written to. Writes nothing.
PULSE_INLINE void require_place(const std::filesystem::path& path);

/// Makes a folder and those above it that are missing, each safe from a loss of power.
template <class Disk>
void make_durable_folder(const Disk& on, const std::filesystem::path& path) {
    std::error_code unused;
    if (path.empty() || std::filesystem::is_directory(path, unused)) { return; }
    const std::filesystem::path above = path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
    if (!path.has_filename()) { return make_durable_folder(on, above); } // "a/b/"
    make_durable_folder(on, above);
    if (!on.make_folder(path) && !std::filesystem::is_directory(path, unused)) {
        throw input_error("'" + path.string() + "' is there and is no folder");
    }
    on.sync_folder(above);
}

/// Makes the folder of a checkpoint that is to be written; its name was never one before, so that no file of another
/// attempt can be taken for one of this. Throws input_error when it cannot.
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

/// Removes a checkpoint: the manifest first, so that at no instant a part of it is taken for the whole. Throws
/// input_error naming what stays; a folder in which there is anything else stays as it is.
template <class Disk>
void remove_checkpoint(const Disk& on, const std::filesystem::path& folder) {
    std::error_code fault;
    std::vector<std::filesystem::path> files;
    for (std::filesystem::directory_iterator at{folder, fault}, end; !fault && at != end; at.increment(fault)) {
        if (!detail::is_ours(at->path().filename().string())) {
            throw input_error("'" + at->path().string() + "' is no part of a checkpoint: its folder stays");
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
