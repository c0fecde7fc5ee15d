#pragma once

#include <string_view>

#include <pulse/core/separate.hpp>
#include <pulse/io/json_forward.hpp>

namespace pulse::io {

/// The JSON value of `text`. Throws input_error, which names `source` and, where the text stops being JSON, the last
/// field before; also for an object that names a field twice, of which one would be ignored, and beyond 200 levels.
///
/// The text is read twice: nlohmann's parser with a callback looks at all entries of an array behind each object in it.
[[nodiscard]] PULSE_INLINE nlohmann::json parse_json(std::string_view text, std::string_view source);

} // namespace pulse::io

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/io/parse_json.ipp> // IWYU pragma: keep
#endif
