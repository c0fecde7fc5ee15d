#pragma once

#include <cstdint>
#include <filesystem>

#include <pulse/core/separate.hpp>

namespace pulse::train {

/// Contents of a merged file.
enum class merged_content : std::uint8_t {
    all,      ///< everything, so that training can go on from it
    weights,  ///< the trained weights alone, as other tools expect a model
    averages, ///< the moving averages, under the names of the weights
};

/// Writes a checkpoint (anything that find_checkpoint accepts) as one safetensors file with diffusers' names,
/// atomically: weights under their own names, moments and averages under `optimizer.m.`, `optimizer.v.` and `ema.`,
/// means of rows and columns under `optimizer.rows.` and `optimizer.columns.`, the state and a CRC-32 per tensor in the
/// metadata. Equal content gives equal bytes, whichever ranks wrote it. Uses memory for one piece, whatever the size.
///
/// Throws input_error naming the file that is damaged or cannot be written; the old file then stays in place.
PULSE_INLINE void export_merged(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                                merged_content content = merged_content::all);

} // namespace pulse::train

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/checkpoint/merged.ipp> // IWYU pragma: keep
#endif
