#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/io/safetensors.hpp>

namespace pulse::test {

using named_tensor = train::checkpoint_tensor<const float>;

/// Writes whole tensors as a checkpoint of one file, without shards or a manifest; parts that are empty are not kept.
inline void save_single(const std::filesystem::path& path, std::span<const named_tensor> tensors,
                        const train::training_state& state) {
    io::tensor_metadata metadata = train::detail::metadata_of(state);
    std::vector<io::tensor_source> sources;
    for (const train::tensor_range<const float>& range : train::ranges_of(tensors)) {
        const auto bytes = std::as_bytes(range.values);
        metadata.emplace(train::detail::checksum_prefix + range.key(),
                         train::detail::checksum_text(train::detail::crc32_of(bytes)));
        sources.push_back({range.key(), io::f32, train::detail::dims_of(range.what), bytes});
    }
    io::write_safetensors(path, sources, metadata);
}

/// Fills whole tensors from any checkpoint, but for parts that are empty.
inline train::training_state load_single(const std::filesystem::path& path,
                                         std::span<const train::checkpoint_tensor<float>> tensors) {
    train::checkpoint_reader reader{path};
    reader.read(train::ranges_of(tensors));
    return reader.state();
}

} // namespace pulse::test
