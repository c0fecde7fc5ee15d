#pragma once

/// nlohmann::json as a type that is declared: what is done with values is in bodies. nlohmann-json of one header before
/// 3.11 has no header for that.
// IWYU pragma: begin_exports
#if __has_include(<nlohmann/json_fwd.hpp>)
#include <nlohmann/json_fwd.hpp>
#else
#include <nlohmann/json.hpp>
#endif
// IWYU pragma: end_exports
