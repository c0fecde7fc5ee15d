#pragma once

#include <cstdint>

#include <pulse/plan/instruction.hpp>

namespace pulse {

/// What an instruction does with a buffer: needs its value, gives it a first value, or changes the value it has.
enum class access : std::uint8_t { read, write, update };

/// One buffer that an instruction touches. A buffer that an instruction writes and then reads itself is listed as
/// written.
struct buffer_access {
    buffer_id buffer{};
    access mode{};

    [[nodiscard]] constexpr bool operator==(const buffer_access&) const = default;
};

} // namespace pulse
