#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <zlib.h>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train {

namespace detail {

template <class Number>
[[nodiscard]] Number number_in(const io::tensor_metadata& metadata, const std::string& file, const char* key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) { throw input_error(file + ": its metadata lack '" + key + "'"); }
    Number value{};
    const char* const end = found->second.data() + found->second.size();
    const auto [stop, fault] = std::from_chars(found->second.data(), end, value);
    if (fault != std::errc{} || stop != end || found->second.starts_with('-')) {
        throw input_error(file + ": '" + key + "' is '" + found->second + "', no count");
    }
    return value;
}

PULSE_INLINE std::vector<std::int64_t> dims_of(const parameter& what) {
    return {what.dims.begin(), what.dims.begin() + what.rank};
}

PULSE_INLINE std::string checksum_text(unsigned long sum) {
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08lx", sum);
    return text.data();
}

PULSE_INLINE std::string checksum_of(std::span<const std::byte> bytes) {
    return checksum_text(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

PULSE_INLINE io::tensor_metadata metadata_of(const training_state& state) {
    io::tensor_metadata metadata{{"format", "pt"}, // what diffusers and transformers ask for
                                 {"pulse.format", checkpoint_format},
                                 {"pulse.step", std::to_string(state.step)},
                                 {"pulse.position", std::to_string(state.position)},
                                 {"pulse.seed", std::to_string(state.seed)}};
    for (const auto& [key, value] : state.config) { metadata.emplace(config_prefix + key, value); }
    return metadata;
}

PULSE_INLINE std::string_view prefix_of(std::string_view name) {
    for (std::size_t part = 1; part != tensor_prefixes.size(); ++part) {
        if (name.starts_with(tensor_prefixes[part])) { return tensor_prefixes[part]; }
    }
    return {};
}

PULSE_INLINE training_state state_of(const io::tensor_metadata& metadata, const std::string& name) {
    const auto format = metadata.find("pulse.format");
    if (format == metadata.end() || format->second != checkpoint_format) {
        throw input_error(name + " is no checkpoint of pulse (" + checkpoint_format + ")");
    }
    training_state state{.step = number_in<std::int64_t>(metadata, name, "pulse.step"),
                         .position = number_in<std::uint64_t>(metadata, name, "pulse.position"),
                         .seed = number_in<std::uint64_t>(metadata, name, "pulse.seed")};
    const std::string_view prefix{config_prefix};
    for (const auto& [key, value] : metadata) {
        if (key.starts_with(prefix)) { state.config.emplace(key.substr(prefix.size()), value); }
    }
    return state;
}

} // namespace detail

PULSE_INLINE void save_checkpoint(const std::filesystem::path& path, std::span<const named_tensor> tensors,
                                  const training_state& state) {
    io::tensor_metadata metadata = detail::metadata_of(state);
    std::vector<io::tensor_source> sources;
    sources.reserve(tensors.size() * 4);
    for (const named_tensor& tensor : tensors) {
        const auto parts = detail::parts_of(tensor);
        for (std::size_t part = 0; part != parts.size(); ++part) {
            if (part != 0 && parts[part].empty()) { continue; }
            const auto bytes = std::as_bytes(parts[part]);
            std::string name = detail::tensor_prefixes[part] + tensor.what.name.str();
            metadata.emplace(detail::checksum_prefix + name, detail::checksum_of(bytes));
            sources.push_back({std::move(name), io::f32, detail::dims_of(tensor.what), bytes});
        }
    }
    io::write_safetensors(path, sources, metadata);
}

PULSE_INLINE void load_tensors(io::safetensors_file& file, const std::string& name,
                               std::span<const named_tensor_ref> tensors, checkpoint_match match) {
    struct destination {
        const io::tensor_entry* source;
        std::span<float> values;
    };
    std::vector<destination> reads;
    std::set<std::string_view> wanted;
    for (const named_tensor_ref& tensor : tensors) {
        const auto parts = detail::parts_of(tensor);
        for (std::size_t part = 0; part != parts.size(); ++part) {
            if (parts[part].empty()) { continue; }
            const std::string key = detail::tensor_prefixes[part] + tensor.what.name.str();
            const io::tensor_entry* const entry = file.find(key);
            if (entry == nullptr) { throw input_error(name + ": tensor '" + key + "' is missing"); }
            if (!(entry->type == io::f32)) {
                throw input_error(name + ": tensor '" + key + "' is " + std::string{entry->type.name} + ", not F32");
            }
            if (entry->dims != detail::dims_of(tensor.what) ||
                static_cast<std::int64_t>(parts[part].size()) != tensor.what.elements()) {
                throw input_error(name + ": tensor '" + key + "' has another shape than the model's");
            }
            wanted.insert(entry->name);
            reads.push_back({entry, parts[part]});
        }
    }
    if (match == checkpoint_match::all) {
        for (const io::tensor_entry& entry : file.tensors()) {
            if (!wanted.contains(entry.name)) {
                throw input_error(name + ": tensor '" + entry.name + "' is unknown to the model");
            }
        }
    }
    // Checked in full before the first destination changes: a damaged file must not leave a model half loaded.
    std::vector<float> values;
    for (const bool writing : {false, true}) {
        for (const auto& [source, target] : reads) {
            const auto sum = file.metadata().find(detail::checksum_prefix + source->name);
            if (!writing && sum == file.metadata().end()) { continue; }
            values.resize(target.size());
            const auto bytes = writing ? std::as_writable_bytes(target) : std::as_writable_bytes(std::span{values});
            file.read(*source, bytes);
            if (!writing && sum->second != detail::checksum_of(bytes)) {
                throw input_error(name + ": tensor '" + source->name + "' is damaged: its checksum does not match");
            }
        }
    }
}

PULSE_INLINE training_state load_checkpoint(const std::filesystem::path& path,
                                            std::span<const named_tensor_ref> tensors, checkpoint_match match) {
    io::safetensors_file file{path};
    const std::string name = "'" + path.string() + "'";
    training_state state = detail::state_of(file.metadata(), name);
    load_tensors(file, name, tensors, match);
    return state;
}

PULSE_INLINE void load_weights(const std::filesystem::path& path, std::span<const named_tensor_ref> tensors,
                               checkpoint_match match) {
    io::safetensors_file file{path};
    load_tensors(file, "'" + path.string() + "'", tensors, match);
}

} // namespace pulse::train
