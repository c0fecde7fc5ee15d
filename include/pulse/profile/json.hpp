#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/profile/cost_table.hpp>

namespace pulse {

/// The cost table that `text` (format `pulse-profile/1`) describes.
///
/// Throws input_error, which names `source` and the first field that is missing, unknown, duplicated, of a wrong type
/// or out of range. Beyond the fixed format it reads "deferred_bytes", "workspace_bytes", "open_bytes",
/// "frozen_parameter_bytes", "frozen_output_bytes" and "factored_elements" of a layer, "input_bytes",
/// "frozen_conditioning_bytes" and "optimizer_gb_per_s"; all are 0 when absent. Frozen components are in "frozen", none
/// when absent. Parts of a layer are adjacent and named <layer>#<k>; other names contain no '#'.
[[nodiscard]] PULSE_INLINE cost_table parse_profile(std::string_view text, std::string_view source = "profile");

/// The table as `pulse-profile/1`, one line per layer and edge, frozen components in a list of their own if there are
/// any; parse_profile restores the same table. Throws input_error for an invalid table, so that every written file can
/// be read.
[[nodiscard]] PULSE_INLINE std::string print_profile(const cost_table& costs);

/// Reads a profile from a file. Throws input_error naming the file and the field.
[[nodiscard]] PULSE_INLINE cost_table load_profile(const std::filesystem::path& path);

/// Writes a profile to a file that appears whole or not at all (io::atomic_file). Throws input_error.
PULSE_INLINE void save_profile(const cost_table& costs, const std::filesystem::path& path);

} // namespace pulse

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/profile/json.ipp> // IWYU pragma: keep
#endif
