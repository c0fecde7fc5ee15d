#pragma once

#include <nlohmann/json.hpp>

namespace pulse_bench {

/// Steps of pipelines on thread ranks that encode in four ways, measured and simulated; prints a table.
[[nodiscard]] nlohmann::ordered_json measure_frozen(bool quick, bool markdown);

} // namespace pulse_bench
