#pragma once

#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/cuda/engine_choices.hpp>

namespace pulse::cuda {

/// The choices of a text of format `pulse-engines/1`. Throws input_error, which names `source` and the field that is
/// missing, unknown, doubled or of a wrong type.
[[nodiscard]] PULSE_INLINE engine_choice_groups parse_engines(std::string_view text, std::string_view source);

/// The choices as `pulse-engines/1`, which parse_engines gives back.
[[nodiscard]] PULSE_INLINE std::string print_engines(const engine_choice_groups& all);

} // namespace pulse::cuda

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/cuda/json.ipp> // IWYU pragma: keep
#endif
