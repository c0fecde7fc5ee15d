#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/core/fingerprint.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/data/encoded_table.hpp>
#include <pulse/data/text.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::data {

PULSE_PICTURES_INLINE encoded_table::encoded_table(std::filesystem::path folder, encoded_layout layout) :
    folder_{std::move(folder)}, layout_{std::move(layout)}, places_(layout_.keys.size()) {
    for (std::uint32_t row = 0; row != layout_.keys.size(); ++row) { row_of_.emplace(layout_.keys[row], row); }
    refresh();
}

PULSE_PICTURES_INLINE std::vector<std::uint32_t> encoded_table::missing() const {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row != places_.size(); ++row) {
        if (!has(row)) { rows.push_back(row); }
    }
    return rows;
}

PULSE_PICTURES_INLINE bool encoded_table::complete() const noexcept {
    return std::all_of(places_.begin(), places_.end(), [](const place& of) { return of.file != nullptr; });
}

PULSE_PICTURES_INLINE void encoded_table::refresh() {
    std::vector<std::string> found; // sorted, so that all ranks have one order
    std::error_code fault;
    for (std::filesystem::directory_iterator at{folder_, fault}, end; !fault && at != end; at.increment(fault)) {
        std::string name = at->path().filename().string();
        if (name.starts_with(layout_.name + '-') && name.ends_with(ending)) { found.push_back(std::move(name)); }
    }
    // What cannot be seen must not be made again.
    if (fault && fault != std::errc::no_such_file_or_directory) {
        throw input_error("cannot read the folder '" + one_line(folder_.string()) + "': " + fault.message());
    }
    std::sort(found.begin(), found.end());
    for (const std::string& name : found) { open(name); }
}

PULSE_PICTURES_INLINE void encoded_table::write(std::span<const std::uint32_t> rows,
                                                std::span<const std::vector<float>> values,
                                                const std::map<std::uint32_t, std::string>& refused) {
    io::tensor_metadata metadata{{"format", format}};
    std::vector<wide_fingerprint> keys;
    wide_fingerprint all;
    for (const std::uint32_t row : rows) {
        if (const auto found = refused.find(row); found != refused.end()) {
            metadata["refused " + std::to_string(keys.size())] = plain(found->second);
        }
        keys.push_back(layout_.keys[row]);
        all.add(keys.back().text());
    }
    std::vector<io::tensor_source> tensors{
        {keys_name, key_type, {std::ssize(keys), sizeof(wide_fingerprint)}, std::as_bytes(std::span{keys})}};
    for (std::size_t p = 0; p != layout_.parts.size(); ++p) {
        tensors.push_back(
            {layout_.parts[p].name, io::f32, dims_of(p, keys.size()), std::as_bytes(std::span{values[p]})});
    }
    std::error_code fault; // ignored: writing the file fails with the same reason
    std::filesystem::create_directories(folder_, fault);
    const std::string name = layout_.name + '-' + all.text() + ending;
    io::write_safetensors(folder_ / name, tensors, metadata);
    open(name);
}

PULSE_PICTURES_INLINE const std::string* encoded_table::refusal(std::uint32_t row) const {
    const auto found = refused_.find(row);
    return found == refused_.end() ? nullptr : &found->second;
}

PULSE_PICTURES_INLINE void encoded_table::read(std::uint32_t row, std::size_t part, std::span<float> out) const {
    const std::size_t bytes = layout_.parts.at(part).elements() * sizeof(float);
    if (row >= places_.size() || !has(row) || out.size_bytes() != bytes) {
        throw input_error("encoded " + layout_.name + ": row " + std::to_string(row) + " is missing or does not have " +
                          std::to_string(out.size()) + " values");
    }
    const io::safetensors_file& file = *places_[row].file;
    const auto all = file.bytes(*file.find(layout_.parts[part].name));
    std::memcpy(out.data(), all.data() + places_[row].row * bytes, bytes);
}

PULSE_PICTURES_INLINE void encoded_table::remove_leftovers() const {
    std::vector<std::filesystem::path> found;
    std::error_code fault;
    for (std::filesystem::directory_iterator at{folder_, fault}, end; !fault && at != end; at.increment(fault)) {
        const std::string name = at->path().filename().string();
        if (name.starts_with('.' + layout_.name + '-') && name.ends_with(".tmp")) { found.push_back(at->path()); }
    }
    for (const auto& path : found) { std::filesystem::remove(path, fault); }
}

PULSE_PICTURES_INLINE std::vector<std::int64_t> encoded_table::dims_of(std::size_t part, std::size_t rows) const {
    std::vector<std::int64_t> dims{static_cast<std::int64_t>(rows)};
    dims.insert(dims.end(), layout_.parts[part].dims.begin(), layout_.parts[part].dims.end());
    return dims;
}

PULSE_PICTURES_INLINE std::string encoded_table::plain(std::string text) {
    if (valid_utf8(text) == text.size()) { return text; }
    for (char& c : text) { c = static_cast<unsigned char>(c) < 0x80 ? c : '?'; }
    return text;
}

PULSE_PICTURES_INLINE void encoded_table::open(const std::string& name) {
    if (!opened_.insert(name).second) { return; }
    const std::string path = '\'' + one_line((folder_ / name).string()) + '\'';
    const auto damaged = [&](const std::string& what) {
        return input_error(path + ": " + what + ": remove the file, and its contents are made again");
    };
    std::shared_ptr<const io::safetensors_file> file;
    try {
        file = std::make_shared<const io::safetensors_file>(folder_ / name);
    } catch (const input_error& fault) {
        throw input_error(std::string{fault.what()} + ": remove the file, and its contents are made again");
    }
    const auto said = file->metadata().find("format");
    if (said == file->metadata().end() || said->second != format) {
        throw input_error(path + " is not " + format +
                          ", because another version wrote it: remove its folder, or give another");
    }
    const io::tensor_entry* const keys = file->find(keys_name);
    if (keys == nullptr || keys->type != key_type || keys->dims.size() != 2 ||
        keys->dims[1] != sizeof(wide_fingerprint)) {
        throw damaged("its tensor 'keys' is missing or has another shape");
    }
    std::vector<wide_fingerprint> has(static_cast<std::size_t>(keys->dims[0]));
    file->read(*keys, std::as_writable_bytes(std::span{has}));
    bool checked = false;
    for (std::size_t i = 0; i != has.size(); ++i) {
        const auto asked = row_of_.find(has[i]);
        if (asked == row_of_.end() || this->has(asked->second)) { continue; }
        for (std::size_t p = 0; p != layout_.parts.size() && !checked; ++p) {
            const io::tensor_entry* const tensor = file->find(layout_.parts[p].name);
            if (tensor == nullptr || tensor->type != io::f32 || tensor->dims != dims_of(p, has.size())) {
                throw damaged("its tensor '" + layout_.parts[p].name + "' is missing or has another shape");
            }
        }
        checked = true;
        places_[asked->second] = {file, i};
        const auto why = file->metadata().find("refused " + std::to_string(i));
        if (why != file->metadata().end()) { refused_[asked->second] = why->second; }
    }
}

} // namespace pulse::data
