#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/diffusers/model_files.hpp>
#include <pulse/diffusers/weight_numbers.hpp>
#include <pulse/io/safetensors_header.hpp>

namespace pulse::diffusers {

/// Whether a path names a checkpoint of one file, and not a folder.
[[nodiscard]] inline bool names_single_file(const std::filesystem::path& path) {
    return path.extension() == ".safetensors";
}

/// Throws input_error unless a pipeline may become a checkpoint of one file at `to`: all that is copied is there and
/// fits, and what is at `to` is such a checkpoint or nothing, and not inside a component of `from`; or as
/// train::require_place() does.
PULSE_INLINE void require_single_file(const model_files& from, const std::filesystem::path& to);

/// Writes a checkpoint of one file (single_file.hpp) that appears whole or not at all: `values` are those of the UNet's
/// `tensors`, in the format's type; weights of the vae and of text encoders are copied bit for bit. Of another such
/// file all else is kept too, with its notes (metadata), but for averages beside the UNet (model_ema), which are not
/// its own any more. `from`.file and `to` may be the same.
///
/// Throws input_error as require_single_file() does, or naming the tensor or the path.
PULSE_INLINE void write_single_file(const model_files& from, const std::filesystem::path& to,
                                    std::vector<io::tensor_shape> tensors, const tensor_values& values,
                                    weights_format format = {});

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/single_file_writer.ipp> // IWYU pragma: keep
#endif
