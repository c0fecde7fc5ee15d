#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <zlib.h>

#include <pulse/core/error.hpp>
#include <pulse/io/safetensors.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train {

/// Where a training run stands, beside its tensors. Random numbers are functions of `seed` and positions (random.hpp),
/// so nothing else is needed to go on as if never interrupted.
struct training_state {
    std::int64_t step{};      ///< optimizer steps done
    std::uint64_t position{}; ///< training samples consumed, over all epochs
    std::uint64_t seed{};
    std::map<std::string, std::string> config{}; ///< what the run was started with; the trainer compares it on resume

    [[nodiscard]] bool operator==(const training_state&) const = default;
};

/// A parameter and what training keeps beside it; a span that is empty is not kept.
template <class T>
struct checkpoint_tensor {
    parameter what{};
    std::span<T> weight{};
    std::span<T> first_moment{};
    std::span<T> second_moment{};
    std::span<T> average{};
};
using named_tensor = checkpoint_tensor<const float>;
using named_tensor_ref = checkpoint_tensor<float>;

/// Whether a checkpoint may hold tensors that were not asked for (`some`: one rank of a pipeline reads its part).
enum class checkpoint_match : std::uint8_t { all, some };

namespace detail {

inline constexpr const char* checkpoint_format = "pulse-checkpoint/1";
inline constexpr const char* config_prefix = "pulse.config.";
inline constexpr const char* checksum_prefix = "pulse.crc32.";

/// The names in the file: plain for weights, so that other tools read them, and prefixed for the rest.
inline constexpr std::array<const char*, 4> tensor_prefixes{"", "optimizer.m.", "optimizer.v.", "ema."};

template <class T>
[[nodiscard]] std::array<std::span<T>, 4> parts_of(const checkpoint_tensor<T>& tensor) {
    return {tensor.weight, tensor.first_moment, tensor.second_moment, tensor.average};
}

[[nodiscard]] inline std::vector<std::int64_t> dims_of(const parameter& what) {
    return {what.dims.begin(), what.dims.begin() + what.rank};
}

[[nodiscard]] inline std::string checksum_text(unsigned long sum) {
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08lx", sum);
    return text.data();
}
[[nodiscard]] inline std::string checksum_of(std::span<const std::byte> bytes) {
    return checksum_text(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

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

/// What the metadata of a checkpoint of one file say beside checksums.
[[nodiscard]] inline io::tensor_metadata metadata_of(const training_state& state) {
    io::tensor_metadata metadata{{"format", "pt"}, // what diffusers and transformers ask for
                                 {"pulse.format", checkpoint_format},
                                 {"pulse.step", std::to_string(state.step)},
                                 {"pulse.position", std::to_string(state.position)},
                                 {"pulse.seed", std::to_string(state.seed)}};
    for (const auto& [key, value] : state.config) { metadata.emplace(config_prefix + key, value); }
    return metadata;
}

/// The prefix that makes a name in the file one of the parts.
[[nodiscard]] inline std::string_view prefix_of(std::string_view name) {
    for (std::size_t part = 1; part != tensor_prefixes.size(); ++part) {
        if (name.starts_with(tensor_prefixes[part])) { return tensor_prefixes[part]; }
    }
    return {};
}

/// The state in the metadata of a checkpoint of one file. Throws input_error when it is none or incomplete.
[[nodiscard]] inline training_state state_of(const io::tensor_metadata& metadata, const std::string& name) {
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

/// Writes one safetensors file, atomically: weights under their own names, moments and averages under `optimizer.m.`,
/// `optimizer.v.` and `ema.`, the state and a CRC-32 per tensor in the metadata.
///
/// Tensors may come in any order and from any rank; equal content gives equal bytes. Throws input_error naming the
/// tensor whose sizes disagree, or the file that cannot be written; the old file then stays in place.
inline void save_checkpoint(const std::filesystem::path& path, std::span<const named_tensor> tensors,
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

/// Reads tensors of a safetensors file by their names into `tensors`; any type of file that holds them as F32 will do.
///
/// All names and shapes are checked before the first value is written, and CRC-32 values where the file has them.
/// Throws input_error naming the file and the tensor that is missing, unexpected (`all`), damaged or of another shape.
inline void load_tensors(io::safetensors_file& file, const std::string& name, std::span<const named_tensor_ref> tensors,
                         checkpoint_match match) {
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

/// Reads what save_checkpoint wrote: fills every non-empty span and returns the state. Throws as load_tensors does, and
/// when the file is no checkpoint or its state is incomplete.
[[nodiscard]] inline training_state load_checkpoint(const std::filesystem::path& path,
                                                    std::span<const named_tensor_ref> tensors,
                                                    checkpoint_match match = checkpoint_match::all) {
    io::safetensors_file file{path};
    const std::string name = "'" + path.string() + "'";
    training_state state = detail::state_of(file.metadata(), name);
    load_tensors(file, name, tensors, match);
    return state;
}

/// Reads weights alone, from a checkpoint or from another tool's file (diffusion_pytorch_model.safetensors).
inline void load_weights(const std::filesystem::path& path, std::span<const named_tensor_ref> tensors,
                         checkpoint_match match = checkpoint_match::some) {
    io::safetensors_file file{path};
    load_tensors(file, "'" + path.string() + "'", tensors, match);
}

} // namespace pulse::train
