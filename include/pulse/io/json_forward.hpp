#pragma once

/// Forward declaration of nlohmann::json: headers only name the type. The single-header nlohmann-json before 3.11 has
/// no json_fwd.hpp.
// IWYU pragma: begin_exports
#if __has_include(<nlohmann/json_fwd.hpp>)
#include <nlohmann/json_fwd.hpp>
#else
#include <nlohmann/json.hpp>
#endif
// IWYU pragma: end_exports
