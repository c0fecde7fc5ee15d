#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pulse/checkpoint/checkpoint.hpp>
#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train::detail {

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

} // namespace pulse::train::detail
