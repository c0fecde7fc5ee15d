#pragma once

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <unistd.h>

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::launch::detail {

/// Wakes another thread from its poll().
class wake_up {
public:
    wake_up() {
        int ends[2];
        if (::pipe(ends) != 0) {
            throw launch_error{std::string{"pulse: cannot create a pipe: "} + std::strerror(errno)};
        }
        read_ = descriptor{ends[0]};
        write_ = descriptor{ends[1]};
        prepare_socket(ends[0]);
        prepare_socket(ends[1]);
    }

    /// The descriptor to poll for POLLIN.
    [[nodiscard]] int number() const noexcept { return read_.get(); }
    void signal() const noexcept {
        const char one = 1;
        // A full pipe wakes too.
        static_cast<void>(!::write(write_.get(), &one, 1));
    }
    void clear() const noexcept {
        std::array<char, 64> room{};
        while (::read(read_.get(), room.data(), room.size()) > 0) {}
    }

private:
    descriptor read_{};
    descriptor write_{};
};

} // namespace pulse::launch::detail
