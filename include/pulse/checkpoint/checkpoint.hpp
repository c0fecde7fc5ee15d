#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/io/safetensors_header.hpp>
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

[[nodiscard]] PULSE_INLINE std::vector<std::int64_t> dims_of(const parameter& what);

[[nodiscard]] PULSE_INLINE std::string checksum_text(unsigned long sum);

/// What the metadata of a checkpoint of one file say beside checksums.
[[nodiscard]] PULSE_INLINE io::tensor_metadata metadata_of(const training_state& state);

/// The prefix that makes a name in the file one of the parts.
[[nodiscard]] PULSE_INLINE std::string_view prefix_of(std::string_view name);

/// The state in the metadata of a checkpoint of one file. Throws input_error when it is none or incomplete.
[[nodiscard]] PULSE_INLINE training_state state_of(const io::tensor_metadata& metadata, const std::string& name);

} // namespace detail

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/checkpoint.ipp> // IWYU pragma: keep
#endif
