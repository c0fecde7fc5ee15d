#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::diffusers {

/// What a scheduler_config.json says, of every class of diffusers that adds noise by betas, whose defaults stand for
/// keys that it has not.
///
/// Keys that only concern drawing are taken as they are (drawing_of). Throws input_error naming `source` and the key: a
/// class that adds noise otherwise (flow matching, EDM), a value that schedule_of() refuses, or a key that is not known
/// and is neither false nor null.
[[nodiscard]] PULSE_INLINE train::scheduler_settings parse_scheduler(std::string_view text, std::string_view source);

/// The text of a scheduler_config.json: that of a DDIMScheduler.
[[nodiscard]] PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings);

/// Reads `folder`/scheduler_config.json; DIR/scheduler in a diffusers folder.
[[nodiscard]] PULSE_INLINE train::scheduler_settings read_scheduler(const std::filesystem::path& folder);

/// How a scheduler_config.json asks for pictures to be drawn.
struct scheduler_drawing {
    std::string class_name{};          ///< "EulerDiscreteScheduler"
    std::vector<std::string> others{}; ///< keys that ask for what no sampler of pulse does: "use_karras_sigmas true"
};

/// That of a text which parse_scheduler() reads.
[[nodiscard]] PULSE_INLINE scheduler_drawing drawing_of(std::string_view text, std::string_view source);

/// That of `folder`/scheduler_config.json.
[[nodiscard]] PULSE_INLINE scheduler_drawing read_drawing(const std::filesystem::path& folder);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/scheduler.ipp> // IWYU pragma: keep
#endif
