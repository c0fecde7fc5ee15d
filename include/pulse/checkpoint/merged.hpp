#pragma once

#include <cstddef>
#include <cstdint>
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
#include <pulse/checkpoint/reader.hpp>
#include <pulse/io/atomic_file.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::train {

/// What a merged file holds.
enum class merged_content : std::uint8_t {
    all,      ///< everything, so that training can go on from it
    weights,  ///< the trained weights alone, as other tools expect a model
    averages, ///< the moving averages, under the names of the weights
};

/// Writes a checkpoint (any that find_checkpoint finds) as one safetensors file with diffusers' names, atomically: byte
/// for byte what save_checkpoint writes from the same values. Takes the memory of one piece, whatever the size.
///
/// Throws input_error naming the file that is damaged or cannot be written; the old file then stays in place.
inline void export_merged(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                          merged_content content = merged_content::all) {
    checkpoint_reader reader{find_checkpoint(checkpoint)};
    io::tensor_metadata metadata = detail::metadata_of(reader.state());
    std::vector<const checkpoint_entry*> entries;
    std::vector<io::tensor_shape> shapes;
    for (const checkpoint_entry& entry : reader.manifest().tensors) {
        const std::string_view prefix = detail::prefix_of(entry.name);
        if (content == merged_content::weights && !prefix.empty()) { continue; }
        if (content == merged_content::averages && prefix != detail::tensor_prefixes[3]) { continue; }
        std::string name = content == merged_content::averages ? entry.name.substr(prefix.size()) : entry.name;
        // Of the whole tensor, from those of its pieces: the header comes before the values.
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
