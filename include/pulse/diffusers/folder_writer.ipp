#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/diffusers/folder_writer.hpp>
#include <pulse/diffusers/pipeline.hpp>

namespace pulse::diffusers {

PULSE_INLINE void require_replaceable(const std::filesystem::path& target) {
    std::error_code fault;
    const std::filesystem::file_status status = std::filesystem::status(target, fault);
    if (status.type() == std::filesystem::file_type::not_found) { return; }
    if (!std::filesystem::is_directory(status)) {
        throw input_error("'" + target.string() + "' is there and is no folder");
    }
    std::vector<std::filesystem::path> entries;
    for (std::filesystem::directory_iterator at{target, fault}, end; !fault && at != end; at.increment(fault)) {
        entries.push_back(at->path());
    }
    if (fault) { throw input_error("cannot read the folder '" + target.string() + "': " + fault.message()); }
    if (entries.empty()) { return; }
    const pipeline old = read_pipeline(target);
    for (const std::filesystem::path& entry : entries) {
        const std::string name = entry.filename().string();
        if (name == "model_index.json" || old.find(name) != nullptr) { continue; }
        throw input_error("'" + entry.string() +
                          "' is no part of the diffusers folder that it is in: it is not replaced");
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

} // namespace pulse::diffusers
