#pragma once

#include <cstdint>

#include <pulse/plan/instruction.hpp>

namespace pulse {

/// How an instruction uses a buffer: it reads the value, writes a first value, or updates the value in place.
enum class access : std::uint8_t { read, write, update };

/// One buffer that an instruction touches. A buffer that it writes and then reads is listed as written.
struct buffer_access {
    buffer_id buffer{};
    access mode{};

    [[nodiscard]] constexpr bool operator==(const buffer_access&) const = default;
};

} // namespace pulse
