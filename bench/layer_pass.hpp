#pragma once

#include <cstdint>

namespace pulse_bench {

/// Passes of a layer with weights.
enum class layer_pass : std::uint8_t { forward, backward_input, backward_weight };

} // namespace pulse_bench
