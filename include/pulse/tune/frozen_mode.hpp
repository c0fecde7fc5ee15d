#pragma once

#include <cstdint>
#include <string_view>

namespace pulse {

/// How frozen components run alongside a pipeline; `first` and `bubbles` need at least one component.
enum class frozen_mode : std::uint8_t {
    none,    ///< not as tasks: results come from a cache, or are made before each step
    first,   ///< on all ranks, before the first pass
    bubbles, ///< in the gaps of the schedule
    tuned,   ///< whichever is fastest, if there are components
};

[[nodiscard]] constexpr std::string_view name_of(frozen_mode mode) noexcept {
    switch (mode) {
    case frozen_mode::none: return "none";
    case frozen_mode::first: return "first";
    case frozen_mode::bubbles: return "bubbles";
    case frozen_mode::tuned: return "tuned";
    }
    return "?";
}

} // namespace pulse
