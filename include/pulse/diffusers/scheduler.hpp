#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::diffusers {

/// Parses a scheduler_config.json of any class of diffusers that adds noise by betas, by rectified flow
/// (FlowMatchEulerDiscreteScheduler, FlowMatchHeunDiscreteScheduler) or as EDM does (EDMEulerScheduler,
/// EDMDPMSolverMultistepScheduler). Absent keys get the class's defaults.
///
/// Keys that only concern drawing are accepted as they are (drawing_of). Throws input_error naming `source` and the key
/// for another class, a value that process_of() refuses, or an unknown key that is neither false nor null.
[[nodiscard]] PULSE_INLINE train::scheduler_settings parse_scheduler(std::string_view text, std::string_view source);

/// The text of a scheduler_config.json for DDIMScheduler, FlowMatchEulerDiscreteScheduler or EDMEulerScheduler.
[[nodiscard]] PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings);

/// Reads `folder`/scheduler_config.json; DIR/scheduler in a diffusers folder.
[[nodiscard]] PULSE_INLINE train::scheduler_settings read_scheduler(const std::filesystem::path& folder);

/// The class in the text that print_scheduler() writes.
[[nodiscard]] PULSE_INLINE std::string class_of(const train::scheduler_settings& settings);

/// How a scheduler_config.json asks for pictures to be drawn.
struct scheduler_drawing {
    std::string class_name{};          ///< "EulerDiscreteScheduler"
    std::vector<std::string> others{}; ///< keys that ask for what no sampler of pulse does: "use_karras_sigmas true"
};

/// Parses the text of a scheduler_config.json that parse_scheduler() accepts.
[[nodiscard]] PULSE_INLINE scheduler_drawing drawing_of(std::string_view text, std::string_view source);

/// Reads `folder`/scheduler_config.json.
[[nodiscard]] PULSE_INLINE scheduler_drawing read_drawing(const std::filesystem::path& folder);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/scheduler.ipp> // IWYU pragma: keep
#endif
