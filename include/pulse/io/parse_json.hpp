#pragma once

#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/io/json_forward.hpp>

namespace pulse::io {

/// The JSON value of `text`. Throws input_error naming `source` and, for invalid JSON, the last field before the error;
/// also for an object that repeats a field, because one of them would be ignored, and beyond 200 levels.
///
/// The text is read twice, because nlohmann's parser with a callback revisits all entries of an array after each object
/// in it.
[[nodiscard]] PULSE_INLINE nlohmann::json parse_json(std::string_view text, std::string_view source);

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/parse_json.ipp> // IWYU pragma: keep
#endif
