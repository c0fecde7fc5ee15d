#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
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

[[nodiscard]] PULSE_INLINE std::vector<std::int64_t> dims_of(const parameter& what);

[[nodiscard]] PULSE_INLINE std::string checksum_text(unsigned long sum);

[[nodiscard]] PULSE_INLINE std::string checksum_of(std::span<const std::byte> bytes);

/// What the metadata of a checkpoint of one file say beside checksums.
[[nodiscard]] PULSE_INLINE io::tensor_metadata metadata_of(const training_state& state);

/// The prefix that makes a name in the file one of the parts.
[[nodiscard]] PULSE_INLINE std::string_view prefix_of(std::string_view name);

/// The state in the metadata of a checkpoint of one file. Throws input_error when it is none or incomplete.
[[nodiscard]] PULSE_INLINE training_state state_of(const io::tensor_metadata& metadata, const std::string& name);

} // namespace detail

/// Writes one safetensors file, atomically: weights under their own names, moments and averages under `optimizer.m.`,
/// `optimizer.v.` and `ema.`, the state and a CRC-32 per tensor in the metadata.
///
/// Tensors may come in any order and from any rank; equal content gives equal bytes. Throws input_error naming the
/// tensor whose sizes disagree, or the file that cannot be written; the old file then stays in place.
PULSE_INLINE void save_checkpoint(const std::filesystem::path& path, std::span<const named_tensor> tensors,
                                  const training_state& state);

/// Reads tensors of a safetensors file by their names into `tensors`; any type of file that holds them as F32 will do.
///
/// All names and shapes are checked before the first value is written, and CRC-32 values where the file has them.
/// Throws input_error naming the file and the tensor that is missing, unexpected (`all`), damaged or of another shape.
PULSE_INLINE void load_tensors(io::safetensors_file& file, const std::string& name,
                               std::span<const named_tensor_ref> tensors, checkpoint_match match);

/// Reads what save_checkpoint wrote: fills every non-empty span and returns the state. Throws as load_tensors does, and
/// when the file is no checkpoint or its state is incomplete.
[[nodiscard]] PULSE_INLINE training_state load_checkpoint(const std::filesystem::path& path,
                                                          std::span<const named_tensor_ref> tensors,
                                                          checkpoint_match match = checkpoint_match::all);

/// Reads weights alone, from a checkpoint or from another tool's file (diffusion_pytorch_model.safetensors).
PULSE_INLINE void load_weights(const std::filesystem::path& path, std::span<const named_tensor_ref> tensors,
                               checkpoint_match match = checkpoint_match::some);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/checkpoint.ipp> // IWYU pragma: keep
#endif
