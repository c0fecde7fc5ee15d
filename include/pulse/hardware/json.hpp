#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/hardware/cluster.hpp>

namespace pulse {

/// The cluster that `text` (format `pulse-cluster/1`) describes.
///
/// Throws input_error, which names `source` and the first field that is missing, unknown, duplicated, of a wrong type
/// or out of range (see check_cluster). Beyond the fixed format it reads "name", empty when absent, and, instead of
/// memory_bytes, "devices": a list of all devices with "device", "memory_bytes" and "relative_speed".
[[nodiscard]] PULSE_INLINE cluster parse_cluster(std::string_view text, std::string_view source = "cluster");

/// The cluster as `pulse-cluster/1`; parse_cluster restores the same cluster. Throws input_error for an invalid
/// cluster, so that every written file can be read.
[[nodiscard]] PULSE_INLINE std::string print_cluster(const cluster& c);

/// Reads a cluster from a file. Throws input_error naming the file and the field.
[[nodiscard]] PULSE_INLINE cluster load_cluster(const std::filesystem::path& path);

/// Writes a cluster to a file that appears whole or not at all (io::atomic_file). Throws input_error.
PULSE_INLINE void save_cluster(const cluster& c, const std::filesystem::path& path);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/hardware/json.ipp> // IWYU pragma: keep
#endif
