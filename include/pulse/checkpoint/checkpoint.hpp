#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pulse/core/error.hpp>
#include <pulse/io/safetensors_header.hpp>
#include <pulse/model/parameter.hpp>

namespace pulse::train {

/// State of a training run besides its tensors. Random numbers are functions of `seed` and positions (random.hpp), so a
/// run continues from it exactly as if never interrupted.
struct training_state {
    std::int64_t step{};      ///< optimizer steps done
    std::uint64_t position{}; ///< training samples consumed, over all epochs
    std::uint64_t seed{};
    std::map<std::string, std::string> config{}; ///< what the run was started with; the trainer compares it on resume

    [[nodiscard]] bool operator==(const training_state&) const = default;
};

namespace detail {

inline constexpr const char* checkpoint_format = "pulse-checkpoint/1";
inline constexpr const char* config_prefix = "pulse.config.";
inline constexpr const char* checksum_prefix = "pulse.crc32.";

/// Name prefixes in the file: none for weights, so that other tools can read them.
inline constexpr std::array<const char*, 6> tensor_prefixes{"",     "optimizer.m.",    "optimizer.v.",
                                                            "ema.", "optimizer.rows.", "optimizer.columns."};

[[nodiscard]] inline std::vector<std::int64_t> dims_of(const parameter& what) {
    return {what.dims.begin(), what.dims.begin() + what.rank};
}

[[nodiscard]] inline std::string checksum_text(unsigned long sum) {
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08lx", sum);
    return text.data();
}

/// Metadata of a single-file checkpoint, without checksums.
[[nodiscard]] inline io::tensor_metadata metadata_of(const training_state& state) {
    io::tensor_metadata metadata{{"format", "pt"}, // diffusers and transformers require it
                                 {"pulse.format", checkpoint_format},
                                 {"pulse.step", std::to_string(state.step)},
                                 {"pulse.position", std::to_string(state.position)},
                                 {"pulse.seed", std::to_string(state.seed)}};
    for (const auto& [key, value] : state.config) { metadata.emplace(config_prefix + key, value); }
    return metadata;
}

/// The prefix of a name in the file, which tells its tensor_part; empty for weights.
[[nodiscard]] inline std::string_view prefix_of(std::string_view name) {
    for (std::size_t part = 1; part != tensor_prefixes.size(); ++part) {
        if (name.starts_with(tensor_prefixes[part])) { return tensor_prefixes[part]; }
    }
    return {};
}

template <class Number>
[[nodiscard]] Number number_in(const io::tensor_metadata& metadata, const std::string& file, const char* key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) { throw input_error(file + ": its metadata lack '" + key + "'"); }
    Number value{};
    const char* const end = found->second.data() + found->second.size();
    const auto [stop, fault] = std::from_chars(found->second.data(), end, value);
    if (fault != std::errc{} || stop != end || found->second.starts_with('-')) {
        throw input_error(file + ": '" + key + "' must be a count, not '" + found->second + "'");
    }
    return value;
}

/// State from the metadata of a single-file checkpoint. Throws input_error when it is not one, or incomplete.
[[nodiscard]] inline training_state state_of(const io::tensor_metadata& metadata, const std::string& name) {
    const auto format = metadata.find("pulse.format");
    if (format == metadata.end() || format->second != checkpoint_format) {
        throw input_error(name + " is not a checkpoint of pulse (" + checkpoint_format + ")");
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

} // namespace pulse::train
