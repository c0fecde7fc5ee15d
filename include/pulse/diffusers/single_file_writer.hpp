#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weight_numbers.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

/// Whether a path names a checkpoint of one file rather than a folder.
[[nodiscard]] inline bool names_single_file(const std::filesystem::path& path) {
    return path.extension() == ".safetensors";
}

/// Throws input_error unless a pipeline may become a checkpoint of one file at `to`: everything to be copied exists and
/// fits, and `to` is absent or such a checkpoint and is not inside a component of `from`. Also throws as
/// train::require_place() does.
PULSE_INLINE void require_single_file(const model_files& from, const std::filesystem::path& to);

/// Writes a checkpoint of one file (single_file.hpp) that appears whole or not at all. `values` are those of the UNet's
/// `tensors`, written in the format's type; weights of the vae and of text encoders are copied bit for bit. Everything
/// else in `from`.file is kept, with its notes (metadata), except averages beside the UNet (model_ema), which do not
/// belong to the new weights. `from`.file and `to` may be the same.
///
/// Throws input_error as require_single_file() does, or naming the tensor or the path.
PULSE_INLINE void write_single_file(const model_files& from, const std::filesystem::path& to,
                                    std::vector<io::tensor_shape> tensors, const tensor_values& values,
                                    weights_format format = {});

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/single_file_writer.ipp> // IWYU pragma: keep
#endif
