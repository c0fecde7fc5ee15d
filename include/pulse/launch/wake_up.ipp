#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <unistd.h>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/wake_up.hpp>

namespace pulse::launch::detail {

PULSE_INLINE wake_up::wake_up() {
    int ends[2];
    if (::pipe(ends) != 0) {
        throw launch_error{std::string{"pulse: no pipe can be made: "} + std::strerror(errno)};
    }
    read_ = descriptor{ends[0]};
    write_ = descriptor{ends[1]};
    prepare_socket(ends[0]);
    prepare_socket(ends[1]);
}

PULSE_INLINE void wake_up::signal() const noexcept {
    const char one = 1;
    // A full pipe wakes as well.
    static_cast<void>(!::write(write_.get(), &one, 1));
}

PULSE_INLINE void wake_up::clear() const noexcept {
    std::array<char, 64> room{};
    while (::read(read_.get(), room.data(), room.size()) > 0) {}
}

} // namespace pulse::launch::detail
