#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <netdb.h>
#include <poll.h>
#include <unistd.h>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>

namespace pulse::launch::detail {

/// Owns a file descriptor.
class descriptor {
public:
    descriptor() = default;
    explicit descriptor(int number) noexcept : number_{number} {}
    descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
    descriptor& operator=(descriptor&& other) noexcept {
        descriptor taken{std::move(other)};
        std::swap(number_, taken.number_);
        return *this;
    }
    ~descriptor() {
        if (number_ >= 0) { ::close(number_); }
    }

    [[nodiscard]] int get() const noexcept { return number_; }
    [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }

private:
    int number_{-1};
};

/// Makes the socket non-blocking, closed on exec, and without delay for small messages (TCP_NODELAY).
PULSE_INLINE void prepare_socket(int socket) noexcept;

/// Waits until the descriptor is ready for `events` or broken; false at the deadline.
[[nodiscard]] PULSE_INLINE bool wait_ready(int number, short events, const deadline& until);

[[nodiscard]] PULSE_INLINE std::uint16_t port_of(int socket) noexcept;

/// Whether a socket is connected to itself: a loopback port without a listener can connect when it is also the source.
[[nodiscard]] PULSE_INLINE bool meets_itself(int socket) noexcept;

/// Whether the host is the loopback, which no other machine can reach.
[[nodiscard]] PULSE_INLINE bool is_loopback(std::string_view host) noexcept;

/// A socket that listens on `port` (0: a free one) of this machine: on all its addresses, or only on the loopback if
/// `host` is loopback. Sets `port` to the one in use. Throws launch_error when it is taken.
[[nodiscard]] PULSE_INLINE descriptor listen_on(const std::string& host, std::uint16_t& port);

/// A connection to the first address of `at` that answers; empty, with the reason in `why`, when none does before the
/// deadline.
[[nodiscard]] PULSE_INLINE descriptor connect_to(const endpoint& at, const deadline& until, std::string& why);

/// The same for a list of addresses, which may be null.
[[nodiscard]] PULSE_INLINE descriptor connect_to_one(const addrinfo* list, const deadline& until, std::string& why);

} // namespace pulse::launch::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/socket.ipp> // IWYU pragma: keep
#endif
