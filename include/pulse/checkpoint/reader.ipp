#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors.hpp>

namespace pulse::train {

namespace detail {

/// The manifest that a single-file checkpoint, pulse-checkpoint/1, would have: one piece per tensor.
[[nodiscard]] inline checkpoint_manifest manifest_of_file(const std::filesystem::path& path) {
    const io::safetensors_file file{path};
    const std::string name = "'" + path.string() + "'";
    checkpoint_manifest manifest{.state = state_of(file.metadata(), name)};
    const std::uint64_t bytes = file.tensors().empty() ? 0 : file.tensors().back().end;
    manifest.files.push_back({path.filename().string(), static_cast<std::int64_t>(file.data_begin() + bytes)});
    for (const io::tensor_entry& tensor : file.tensors()) {
        const std::string place = name + ": tensor '" + tensor.name + "'";
        if (!(tensor.type == io::f32)) {
            throw input_error(place + " is " + std::string{tensor.type.name} + ", not F32");
        }
        const auto sum = file.metadata().find(checksum_prefix + tensor.name);
        if (sum == file.metadata().end()) { throw input_error(place + " has no checksum in the metadata"); }
        checkpoint_piece piece{.offset = static_cast<std::int64_t>(file.data_begin() + tensor.begin),
                               .elements = static_cast<std::int64_t>((tensor.end - tensor.begin) / sizeof(float))};
        const char* const end = sum->second.data() + sum->second.size();
        const auto [stop, fault] = std::from_chars(sum->second.data(), end, piece.crc32, 16);
        if (fault != std::errc{} || stop != end) { throw input_error(place + ": its checksum is not a number"); }
        checkpoint_entry& entry = manifest.tensors.emplace_back(checkpoint_entry{tensor.name, tensor.dims, {}});
        if (piece.elements != 0) { entry.pieces.push_back(piece); }
    }
    std::sort(manifest.tensors.begin(), manifest.tensors.end(),
              [](const checkpoint_entry& a, const checkpoint_entry& b) { return a.name < b.name; });
    return manifest;
}

} // namespace detail

PULSE_INLINE checkpoint_reader::checkpoint_reader(const std::filesystem::path& path) {
    std::error_code unused;
    const bool folder = std::filesystem::is_directory(path, unused);
    manifest_ = folder ? read_manifest(path) : detail::manifest_of_file(path);
    for (const checkpoint_file& listed : manifest_.files) {
        opened& file = files_.emplace_back(opened{folder ? path / listed.name : path, nullptr});
        if (!std::filesystem::is_regular_file(file.path, unused)) {
            throw input_error("'" + file.path.string() + "', a file of the checkpoint, is missing");
        }
        const auto size = std::filesystem::file_size(file.path, unused);
        if (size != static_cast<std::uintmax_t>(listed.bytes)) {
            throw input_error("'" + file.path.string() + "' has " + std::to_string(size) +
                              " bytes, but the checkpoint says " + std::to_string(listed.bytes));
        }
    }
}

PULSE_INLINE void checkpoint_reader::check(std::span<const tensor_range<float>> ranges) {
    for (const tensor_range<float>& range : ranges) { require_fit(range); }
    for (const tensor_range<float>& range : ranges) { read(range, false); }
}

PULSE_INLINE void checkpoint_reader::fill(std::span<const tensor_range<float>> ranges) {
    for (const tensor_range<float>& range : ranges) { read(range, true); }
}

PULSE_INLINE void checkpoint_reader::read_piece(const checkpoint_entry& entry, const checkpoint_piece& piece,
                                                std::span<float> out) {
    opened& file = files_[piece.file];
    if (!file.stream) { file.stream = std::make_unique<std::ifstream>(file.path, std::ios::binary); }
    const auto bytes = std::as_writable_bytes(out);
    file.stream->clear();
    file.stream->seekg(piece.offset);
    file.stream->read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const std::string place = "'" + file.path.string() + "': tensor '" + entry.name + "'";
    if (!*file.stream) { throw input_error(place + " cannot be read"); }
    if (detail::crc32_of(bytes) != piece.crc32) {
        throw input_error(place + " is damaged: the checksum of the elements from " + std::to_string(piece.first) +
                          " does not match");
    }
}

PULSE_INLINE void checkpoint_reader::require_fit(const tensor_range<float>& range) const {
    const std::string key = range.key();
    const checkpoint_entry* const entry = manifest_.find(key);
    const std::string place = "checkpoint of step " + std::to_string(manifest_.state.step) + ": tensor '" + key + "'";
    if (entry == nullptr) { throw input_error(place + " is missing"); }
    if (entry->dims != detail::dims_of(range.what)) {
        throw input_error(place + " does not have the shape that the model gives it");
    }
    const auto wanted = static_cast<std::int64_t>(range.values.size());
    if (range.first < 0 || wanted > entry->elements() - range.first) {
        throw input_error(place + " has " + std::to_string(entry->elements()) + " elements, but " +
                          std::to_string(range.first) + " to " + std::to_string(range.first + wanted) +
                          " are requested");
    }
}

PULSE_INLINE void checkpoint_reader::read(const tensor_range<float>& range, bool writing) {
    const checkpoint_entry& entry = *manifest_.find(range.key());
    const std::int64_t last = range.first + static_cast<std::int64_t>(range.values.size());
    auto piece = std::upper_bound(entry.pieces.begin(), entry.pieces.end(), range.first,
                                  [](std::int64_t first, const checkpoint_piece& p) { return first < p.first; });
    if (piece != entry.pieces.begin()) { --piece; }
    for (; piece != entry.pieces.end() && piece->first < last; ++piece) {
        const std::int64_t from = std::max(range.first, piece->first);
        const std::int64_t to = std::min(last, piece->first + piece->elements);
        if (from >= to) { continue; }
        const auto target =
            range.values.subspan(static_cast<std::size_t>(from - range.first), static_cast<std::size_t>(to - from));
        buffer_.resize(static_cast<std::size_t>(piece->elements));
        read_piece(entry, *piece, buffer_);
        if (writing) { std::copy_n(buffer_.begin() + (from - piece->first), to - from, target.begin()); }
    }
}

} // namespace pulse::train
