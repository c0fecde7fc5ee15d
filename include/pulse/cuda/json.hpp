#pragma once

#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/cuda/engine_choices.hpp>

namespace pulse::cuda {

/// Parses choices in format `pulse-engines/1`. Throws input_error, which names `source` and the field that is missing,
/// unknown, duplicated or of the wrong type.
[[nodiscard]] PULSE_INLINE engine_choice_groups parse_engines(std::string_view text, std::string_view source);

/// Prints choices in format `pulse-engines/1`, which parse_engines reads back.
[[nodiscard]] PULSE_INLINE std::string print_engines(const engine_choice_groups& all);

} // namespace pulse::cuda

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/cuda/json.ipp> // IWYU pragma: keep
#endif
