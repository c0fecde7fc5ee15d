#pragma once

#include <array>
#include <cstdint>

#include <pulse/core/label.hpp>

namespace pulse {

/// A trainable tensor: its full name in a checkpoint and its shape, in the checkpoint's order (weights
/// [out][in][ky][kx]).
struct parameter {
    label name{};
    std::array<int, 4> dims{};
    int rank{};
    bool zero{}; ///< starts at 0 when it is not read from a checkpoint

    [[nodiscard]] constexpr std::int64_t elements() const noexcept {
        std::int64_t n = 1;
        for (int d = 0; d != rank; ++d) { n *= dims[static_cast<std::size_t>(d)]; }
        return n;
    }
    [[nodiscard]] constexpr bool operator==(const parameter&) const = default;
};

} // namespace pulse
