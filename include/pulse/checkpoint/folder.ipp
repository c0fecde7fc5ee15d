#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>

namespace pulse::train {

namespace detail {

/// The step in a folder's name; nothing if the name is not one of ours.
[[nodiscard]] inline std::optional<std::int64_t> step_of_name(std::string_view name) {
    constexpr std::string_view prefix = "step-";
    if (!name.starts_with(prefix)) { return {}; }
    const char* const end = name.data() + name.size();
    std::int64_t step{};
    const auto number = std::from_chars(name.data() + prefix.size(), end, step);
    if (number.ec != std::errc{} || step < 0 || number.ptr - name.data() < 13) { return {}; }
    if (number.ptr == end) { return step; }
    int attempt{};
    const auto rest = std::from_chars(number.ptr + 1, end, attempt);
    if (*number.ptr != '.' || rest.ec != std::errc{} || rest.ptr != end || attempt < 2) { return {}; }
    return step;
}

} // namespace detail

PULSE_INLINE std::vector<step_folder> list_checkpoints(const std::filesystem::path& root) {
    std::vector<step_folder> found;
    std::error_code fault;
    for (std::filesystem::directory_iterator at{root, fault}, end; !fault && at != end; at.increment(fault)) {
        std::error_code unused;
        const auto step = detail::step_of_name(at->path().filename().string());
        if (!step || !at->is_directory(unused)) { continue; }
        found.push_back({at->path(), *step, detail::may_exist(at->path() / manifest_name)});
    }
    if (fault) { throw input_error("cannot read the folder '" + root.string() + "': " + fault.message()); }
    std::sort(found.begin(), found.end(),
              [](const step_folder& a, const step_folder& b) { return a.path.filename() < b.path.filename(); });
    return found;
}

PULSE_INLINE std::filesystem::path last_checkpoint(const std::filesystem::path& root) {
    std::filesystem::path last;
    std::int64_t sequence = -1;
    for (const step_folder& folder : list_checkpoints(root)) {
        if (!folder.complete) { continue; }
        const std::int64_t found = read_manifest(folder.path).sequence;
        if (found > sequence) {
            sequence = found;
            last = folder.path;
        }
    }
    if (sequence < 0) { throw input_error("'" + root.string() + "' holds no complete checkpoint"); }
    return last;
}

PULSE_INLINE std::filesystem::path find_checkpoint(const std::filesystem::path& path) {
    std::error_code unused;
    if (!std::filesystem::is_directory(path, unused)) {
        if (std::filesystem::exists(path, unused)) { return path; }
        throw input_error("'" + path.string() + "': no such checkpoint");
    }
    return detail::may_exist(path / manifest_name) ? path : last_checkpoint(path);
}

PULSE_INLINE void require_place(const std::filesystem::path& path) {
    std::error_code unused;
    std::filesystem::path in = std::filesystem::weakly_canonical(std::filesystem::absolute(path), unused).parent_path();
    while (in.has_relative_path() && !detail::may_exist(in)) { in = in.parent_path(); }
    if (!std::filesystem::is_directory(in, unused)) {
        throw input_error("cannot create '" + path.string() + "': '" + in.string() + "' is not a folder");
    }
    if (::access(in.c_str(), W_OK | X_OK) != 0) {
        const std::string why = std::generic_category().message(errno);
        throw input_error("cannot create '" + path.string() + "': '" + in.string() + "' cannot be written to: " + why);
    }
}

} // namespace pulse::train
