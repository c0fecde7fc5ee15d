#pragma once

#include <cstdint>

namespace pulse {

/// F, B, W of a stage or a layer on a microbatch. Where the backward is not split, backward_input includes the weight
/// gradient.
enum class pass : std::uint8_t { forward, backward_input, backward_weight };

/// F, B or W.
[[nodiscard]] constexpr char letter_of(pass kind) noexcept {
    return kind == pass::forward ? 'F' : kind == pass::backward_input ? 'B' : 'W';
}

} // namespace pulse
