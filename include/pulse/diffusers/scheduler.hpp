#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/train/scheduler_settings.hpp>

namespace pulse::diffusers {

/// What a scheduler_config.json says: of DDIMScheduler, PNDMScheduler, DDPMScheduler, EulerDiscreteScheduler or
/// DPMSolverMultistepScheduler, whose defaults stand for keys that it has not.
///
/// Throws input_error naming `source` and the key: a value that schedule_of() refuses, or a key that asks for something
/// that scheduler_settings cannot say. A key that is not known is taken where it is false or null, which is off.
[[nodiscard]] PULSE_INLINE train::scheduler_settings parse_scheduler(std::string_view text, std::string_view source);

/// The text of a scheduler_config.json: that of a DDIMScheduler.
[[nodiscard]] PULSE_INLINE std::string print_scheduler(const train::scheduler_settings& settings);

/// Reads `folder`/scheduler_config.json; DIR/scheduler in a diffusers folder.
[[nodiscard]] PULSE_INLINE train::scheduler_settings read_scheduler(const std::filesystem::path& folder);

} // namespace pulse::diffusers

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/diffusers/scheduler.ipp> // IWYU pragma: keep
#endif
