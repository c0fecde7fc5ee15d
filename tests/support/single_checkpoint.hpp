#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/checkpoint/manifest.hpp>
#include <pulse/checkpoint/reader.hpp>
#include <pulse/checkpoint/shares.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::test {

/// A parameter and its training state; an empty span is not stored.
template <class T>
struct checkpoint_tensor {
    parameter what{};
    std::span<T> weight{};
    std::span<T> first_moment{};
    std::span<T> second_moment{};
    std::span<T> average{};
};
using named_tensor = checkpoint_tensor<const float>;

/// The whole range of each tensor.
template <class T>
[[nodiscard]] std::vector<train::tensor_range<T>> ranges_of(std::span<const checkpoint_tensor<T>> tensors) {
    std::vector<train::tensor_range<T>> all;
    for (const checkpoint_tensor<T>& tensor : tensors) {
        const std::array parts{tensor.weight, tensor.first_moment, tensor.second_moment, tensor.average};
        for (std::size_t part = 0; part != parts.size(); ++part) {
            if (part != 0 && parts[part].empty()) { continue; }
            all.push_back({tensor.what, static_cast<train::tensor_part>(part), 0, parts[part]});
        }
    }
    return all;
}

/// Writes whole tensors as a single-file checkpoint without shards or a manifest; empty parts are not stored.
inline void save_single(const std::filesystem::path& path, std::span<const named_tensor> tensors,
                        const train::training_state& state) {
    io::tensor_metadata metadata = train::detail::metadata_of(state);
    std::vector<io::tensor_source> sources;
    for (const train::tensor_range<const float>& range : ranges_of(tensors)) {
        const auto bytes = std::as_bytes(range.values);
        metadata.emplace(train::detail::checksum_prefix + range.key(),
                         train::detail::checksum_text(train::detail::crc32_of(bytes)));
        sources.push_back({range.key(), io::f32, train::detail::dims_of(range.what), bytes});
    }
    io::write_safetensors(path, sources, metadata);
}

/// Reads whole tensors from any checkpoint, except for empty parts.
inline train::training_state load_single(const std::filesystem::path& path,
                                         std::span<const checkpoint_tensor<float>> tensors) {
    train::checkpoint_reader reader{path};
    reader.read(ranges_of(tensors));
    return reader.state();
}

} // namespace pulse::test
