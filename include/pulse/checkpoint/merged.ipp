#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zlib.h>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/folder.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/merged.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::train {

PULSE_INLINE void export_merged(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                                merged_content content) {
    checkpoint_reader reader{find_checkpoint(checkpoint)};
    io::tensor_metadata metadata = detail::metadata_of(reader.state());
    std::vector<const checkpoint_entry*> entries;
    std::vector<io::tensor_shape> shapes;
    for (const checkpoint_entry& entry : reader.manifest().tensors) {
        const std::string_view prefix = detail::prefix_of(entry.name);
        if (content == merged_content::weights && !prefix.empty()) { continue; }
        if (content == merged_content::averages && prefix != detail::tensor_prefixes[3]) { continue; }
        std::string name = content == merged_content::averages ? entry.name.substr(prefix.size()) : entry.name;
        // Combine the pieces' checksums, because the header is written before the values.
        unsigned long sum = 0;
        for (const checkpoint_piece& piece : entry.pieces) {
            sum = ::crc32_combine(sum, piece.crc32, static_cast<z_off_t>(piece.elements * 4));
        }
        metadata.emplace(detail::checksum_prefix + name, detail::checksum_text(sum));
        entries.push_back(&entry);
        shapes.push_back({std::move(name), io::f32, entry.dims});
    }
    const io::safetensors_layout layout = io::lay_out_safetensors("'" + file.string() + "'", shapes, metadata);

    io::atomic_file out{file};
    out.write(layout.head);
    std::vector<float> values;
    for (const std::size_t i : layout.order) {
        for (const checkpoint_piece& piece : entries[i]->pieces) {
            values.resize(static_cast<std::size_t>(piece.elements));
            reader.read_piece(*entries[i], piece, values);
            out.write(std::as_bytes(std::span{values}));
        }
    }
    out.commit();
}

} // namespace pulse::train
