#pragma once

#include <cstdint>
#include <string_view>

namespace pulse {

/// How frozen components run beside a pipeline; `first` and `bubbles` need some.
enum class frozen_mode : std::uint8_t {
    none,    ///< not as tasks: results are of a cache, or made before each step
    first,   ///< on all ranks, before the first pass
    bubbles, ///< in the gaps of the schedule
    tuned,   ///< as is fastest, where there are any
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
