#pragma once

#include <cstdint>

namespace pulse {

/// F, B, W of a stage or a layer on a microbatch. Where the backward is not split, backward_input includes the weight
/// gradient. A preview is an extra forward pass of a microbatch; the microbatch's own forward reads its result, and
/// nothing else of it is kept.
enum class pass : std::uint8_t { forward, backward_input, backward_weight, preview };

/// F, B, W or P.
[[nodiscard]] constexpr char letter_of(pass kind) noexcept {
    switch (kind) {
    case pass::forward: return 'F';
    case pass::backward_input: return 'B';
    case pass::backward_weight: return 'W';
    case pass::preview: return 'P';
    }
    return '?';
}

} // namespace pulse
