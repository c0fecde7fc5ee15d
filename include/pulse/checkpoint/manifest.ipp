#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <pulse/checkpoint/manifest.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/json_field.hpp>
#include <pulse/io/parse_json.hpp>

namespace pulse::train {

namespace detail {

PULSE_INLINE std::uint32_t crc32_of(std::span<const std::byte> bytes) noexcept {
    return static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Throws input_error unless the pieces of `entry` cover it exactly once, in order.
inline void check_coverage(const checkpoint_entry& entry, const std::string& place) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : entry.dims) {
        if (extent < 0) { throw input_error(place + " has a negative extent in its shape"); }
        // Sizes in bytes, four per element, must not overflow either.
        if (extent != 0 && elements > std::numeric_limits<std::int64_t>::max() / 4 / extent) {
            throw input_error(place + " has too many elements");
        }
        elements *= extent;
    }
    std::int64_t next = 0;
    for (const checkpoint_piece& piece : entry.pieces) {
        if (piece.elements < 1 || piece.first < 0) {
            throw input_error(place + " has a piece that is empty or begins before 0");
        }
        if (piece.first != next) {
            throw input_error(place + (piece.first > next ? " lacks" : " repeats") + " elements from " +
                              std::to_string(std::min(piece.first, next)) + " on");
        }
        if (piece.elements > elements - next) { throw input_error(place + " has pieces beyond its end"); }
        next += piece.elements;
    }
    if (next != elements) { throw input_error(place + " lacks elements from " + std::to_string(next) + " on"); }
}

} // namespace detail

PULSE_INLINE void check_manifest(const checkpoint_manifest& manifest, std::string_view source) {
    const std::string at{source};
    if (manifest.sequence < 0) { throw input_error(at + ": sequence must not be negative"); }
    if (manifest.world < 1) { throw input_error(at + ": world must be at least 1"); }
    if (manifest.state.step < 0) { throw input_error(at + ": state.step must not be negative"); }
    std::set<std::string_view> names;
    for (const checkpoint_file& file : manifest.files) {
        const std::string place = at + ": files: '" + io::printable(file.name) + "'";
        // A name with a folder in it could point outside the checkpoint.
        if (file.name.empty() || file.name.front() == '.' || file.name.find('/') != std::string::npos ||
            file.name.find('\0') != std::string::npos || file.name == manifest_name) {
            throw input_error(place + " is not a valid name for a file of a checkpoint");
        }
        if (!names.insert(file.name).second) { throw input_error(place + " is listed twice"); }
        if (file.bytes < 0) { throw input_error(place + " has a negative size"); }
    }
    struct range {
        std::int64_t begin;
        std::int64_t end;
        const checkpoint_entry* of;
    };
    std::vector<std::vector<range>> taken(manifest.files.size());
    for (std::size_t i = 0; i != manifest.tensors.size(); ++i) {
        const checkpoint_entry& entry = manifest.tensors[i];
        const std::string place = at + ": tensors: '" + io::printable(entry.name) + "'";
        if (i != 0 && !(manifest.tensors[i - 1].name < entry.name)) {
            throw input_error(place + " is listed twice or out of order");
        }
        detail::check_coverage(entry, place);
        for (const checkpoint_piece& piece : entry.pieces) {
            if (piece.file >= manifest.files.size()) { throw input_error(place + " is in an unlisted file"); }
            const std::int64_t size = manifest.files[piece.file].bytes;
            if (piece.offset < 0 || piece.offset > size || piece.elements > (size - piece.offset) / 4) {
                throw input_error(place + " does not lie inside '" + io::printable(manifest.files[piece.file].name) +
                                  "'");
            }
            taken[piece.file].push_back({piece.offset, piece.offset + piece.elements * 4, &entry});
        }
    }
    for (auto& ranges : taken) {
        std::sort(ranges.begin(), ranges.end(), [](const range& a, const range& b) { return a.begin < b.begin; });
        for (std::size_t i = 1; i < ranges.size(); ++i) {
            if (ranges[i].begin < ranges[i - 1].end) {
                throw input_error(at + ": tensors: '" + io::printable(ranges[i].of->name) + "' overlaps '" +
                                  io::printable(ranges[i - 1].of->name) + "'");
            }
        }
    }
}

PULSE_INLINE std::string print_manifest(const checkpoint_manifest& manifest) {
    using nlohmann::json;
    json root{{"format", manifest_format}, {"sequence", manifest.sequence}, {"world", manifest.world}};
    root["plan"] = manifest.plan;
    root["state"] = json{{"step", manifest.state.step},
                         {"position", manifest.state.position},
                         {"seed", manifest.state.seed},
                         {"config", manifest.state.config}};
    json& files = root["files"] = json::array();
    for (const checkpoint_file& file : manifest.files) {
        files.push_back(json{{"name", file.name}, {"bytes", file.bytes}});
    }
    json& tensors = root["tensors"] = json::array();
    for (const checkpoint_entry& entry : manifest.tensors) {
        json pieces = json::array();
        for (const checkpoint_piece& piece : entry.pieces) {
            pieces.push_back(json{{"file", piece.file},
                                  {"offset", piece.offset},
                                  {"first", piece.first},
                                  {"elements", piece.elements},
                                  {"crc32", piece.crc32}});
        }
        tensors.push_back(json{{"name", entry.name}, {"shape", entry.dims}, {"pieces", std::move(pieces)}});
    }
    try {
        const std::string body = root.dump();
        root["crc32"] = detail::crc32_of(std::as_bytes(std::span{body}));
        // One field, file or tensor per line.
        std::string text = "{";
        for (const char* key : {"format", "sequence", "world", "plan", "state", "files", "tensors", "crc32"}) {
            text += (text.size() == 1 ? "\n" : ",\n") + json(key).dump() + ": ";
            if (!root[key].is_array() || root[key].empty()) {
                text += root[key].dump();
                continue;
            }
            const char* between = "[\n ";
            for (const json& one : root[key]) {
                text += between + one.dump();
                between = ",\n ";
            }
            text += "]";
        }
        return text + "\n}\n";
    } catch (const json::exception& fault) {
        throw input_error(std::string{"manifest: a name or the state is not UTF-8: "} + fault.what());
    }
}

PULSE_INLINE checkpoint_manifest parse_manifest(std::string_view text, std::string_view source) {
    nlohmann::json root = io::parse_json(text, source);
    const io::json_field fields{root, {source, "the manifest", manifest_format}};
    fields.only({"format", "sequence", "world", "plan", "state", "files", "tensors", "crc32"});
    if (fields["format"].text() != manifest_format) {
        fields["format"].fail(std::string{"must be "} + manifest_format);
    }
    checkpoint_manifest manifest{
        .sequence = fields["sequence"].bytes(), .world = fields["world"].count(), .plan = fields["plan"].text()};
    const io::json_field state = fields["state"];
    state.only({"step", "position", "seed", "config"});
    manifest.state.step = state["step"].bytes();
    manifest.state.position = state["position"].natural();
    manifest.state.seed = state["seed"].natural();
    if (!root["state"]["config"].is_object()) { state["config"].fail("must be an object"); }
    for (const auto& [key, value] : root["state"]["config"].items()) {
        if (!value.is_string()) { state["config"].fail("has '" + io::printable(key) + "', which is not a string"); }
        manifest.state.config.emplace(key, value.get<std::string>());
    }
    for (const io::json_field& file : fields["files"].list()) {
        file.only({"name", "bytes"});
        manifest.files.push_back({file["name"].text(), file["bytes"].bytes()});
    }
    for (const io::json_field& tensor : fields["tensors"].list()) {
        tensor.only({"name", "shape", "pieces"});
        checkpoint_entry& entry = manifest.tensors.emplace_back(checkpoint_entry{.name = tensor["name"].text()});
        for (const io::json_field& extent : tensor["shape"].list()) { entry.dims.push_back(extent.bytes()); }
        for (const io::json_field& piece : tensor["pieces"].list()) {
            piece.only({"file", "offset", "first", "elements", "crc32"});
            const std::uint64_t sum = piece["crc32"].natural();
            if (sum > 0xFFFFFFFFU) { piece["crc32"].fail("is out of range"); }
            entry.pieces.push_back({static_cast<std::size_t>(piece["file"].bytes()), piece["offset"].bytes(),
                                    piece["first"].bytes(), piece["elements"].bytes(),
                                    static_cast<std::uint32_t>(sum)});
        }
    }
    check_manifest(manifest, source);
    const std::uint64_t sum = fields["crc32"].natural();
    root.erase("crc32");
    const std::string body = root.dump();
    if (sum != detail::crc32_of(std::as_bytes(std::span{body}))) {
        throw input_error(std::string{source} + ": crc32 does not match the other fields: the manifest is damaged");
    }
    return manifest;
}

PULSE_INLINE checkpoint_manifest read_manifest(const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / manifest_name;
    return parse_manifest(io::read_file(path), path.string());
}

} // namespace pulse::train
