#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <pulse/checkpoint/folder.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/config_file.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/pipeline.hpp>
#include <pulse/io/json_field.hpp>

namespace pulse::diffusers {

namespace detail {

/// Whether diffusers writes a file of this name into a component's folder.
[[nodiscard]] inline bool is_component_file(const std::string& name) {
    return name == "config.json" || (name.starts_with("diffusion_pytorch_model") &&
                                     (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")));
}

} // namespace detail

PULSE_INLINE void require_replaceable(const std::filesystem::path& target, std::string_view class_name) {
    train::require_place(target);
    std::error_code fault;
    const std::filesystem::file_status status = std::filesystem::status(target, fault);
    if (status.type() == std::filesystem::file_type::not_found) { return; }
    if (!std::filesystem::is_directory(status)) {
        throw input_error("'" + target.string() + "' already exists and is not a folder");
    }
    std::vector<std::filesystem::path> entries;
    for (std::filesystem::directory_iterator at{target, fault}, end; !fault && at != end; at.increment(fault)) {
        entries.push_back(at->path());
    }
    if (fault) { throw input_error("cannot read the folder '" + target.string() + "': " + fault.message()); }
    if (entries.empty()) { return; }
    if (!class_name.empty()) {
        for (const std::filesystem::path& entry : entries) {
            if (detail::is_component_file(entry.filename().string()) &&
                std::filesystem::is_regular_file(entry, fault)) {
                continue;
            }
            throw input_error("'" + entry.string() + "' is not part of a " + std::string{class_name} +
                              "'s folder: it is not replaced");
        }
        const detail::config_file config{target / "config.json"};
        const io::json_field found = config.root()["_class_name"];
        if (found.text() == class_name) { return; }
        found.fail("is '" + io::printable(found.text()) + "': only a " + std::string{class_name} +
                   "'s folder is replaced");
    }
    const pipeline old = read_pipeline(target);
    for (const std::filesystem::path& entry : entries) {
        const std::string name = entry.filename().string();
        if (name == "model_index.json" || old.find(name) != nullptr) { continue; }
        throw input_error("'" + entry.string() +
                          "' is not part of the diffusers folder that it is in: it is not replaced");
    }
}

PULSE_INLINE std::vector<std::size_t> shards_of(std::span<const std::uint64_t> bytes, std::uint64_t most) {
    std::vector<std::size_t> shard;
    std::size_t last = 0;
    std::uint64_t filled = 0;
    for (const std::uint64_t size : bytes) {
        if (most != 0 && filled != 0 && (size > most || filled > most - size)) {
            ++last;
            filled = 0;
        }
        filled += size;
        shard.push_back(last);
    }
    return shard;
}

PULSE_INLINE std::string print_shards(const std::map<std::string, std::string>& files, std::uint64_t bytes) {
    const nlohmann::json index{{"metadata", {{"total_size", bytes}}}, {"weight_map", files}};
    return index.dump(2) + "\n";
}

} // namespace pulse::diffusers
