#pragma once

#include <cstdint>

#include <pulse/hardware/link.hpp>

namespace pulse {

/// Time of a ring all-reduce of `bytes` over D replicas: 2 (D - 1) messages of 1/D of them, one after the other; none
/// for a single replica.
[[nodiscard]] constexpr double ring_all_reduce_us(std::int64_t bytes, int replicas, const link& line) noexcept {
    if (replicas < 2) { return 0; }
    return 2.0 * (replicas - 1) * line.transfer_us((bytes + replicas - 1) / replicas);
}

/// What each replica sends for it, in bytes: 2 (D - 1) / D of `bytes`.
[[nodiscard]] constexpr std::int64_t ring_all_reduce_bytes(std::int64_t bytes, int replicas) noexcept {
    return replicas < 2 ? 0 : 2 * (replicas - 1) * ((bytes + replicas - 1) / replicas);
}

} // namespace pulse
