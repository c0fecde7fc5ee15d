#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::launch::detail {

struct free_addresses {
    void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};

/// The addresses of a host and port; empty, with the reason in `why`, when there are none. The system's resolver has
/// no deadline.
[[nodiscard]] inline std::unique_ptr<addrinfo, free_addresses> resolve(const endpoint& at, std::string& why) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int failed = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &list);
    if (failed != 0) {
        why = std::string{"the name cannot be resolved: "} + ::gai_strerror(failed);
        return nullptr;
    }
    return std::unique_ptr<addrinfo, free_addresses>{list};
}

PULSE_INLINE void prepare_socket(int socket) noexcept {
    ::fcntl(socket, F_SETFD, FD_CLOEXEC);
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

PULSE_INLINE bool wait_ready(int number, short events, const deadline& until) {
    for (;;) {
        pollfd one{number, events, 0};
        const int ready = ::poll(&one, 1, until.poll_ms());
        if (ready > 0) { return true; }
        if (ready < 0 && errno != EINTR) { return true; } // the caller's next use reports the error
        if (until.passed()) { return false; }
    }
}

PULSE_INLINE std::uint16_t port_of(int socket) noexcept {
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) { return 0; }
    if (bound.ss_family == AF_INET6) {
        sockaddr_in6 six{};
        std::memcpy(&six, &bound, sizeof six);
        return ntohs(six.sin6_port);
    }
    sockaddr_in four{};
    std::memcpy(&four, &bound, sizeof four);
    return ntohs(four.sin_port);
}

PULSE_INLINE bool meets_itself(int socket) noexcept {
    sockaddr_storage mine{};
    sockaddr_storage theirs{};
    socklen_t my_size = sizeof mine;
    socklen_t their_size = sizeof theirs;
    return ::getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &my_size) == 0 &&
           ::getpeername(socket, reinterpret_cast<sockaddr*>(&theirs), &their_size) == 0 && my_size == their_size &&
           std::memcmp(&mine, &theirs, my_size) == 0;
}

/// A socket that listens at the address; empty, with errno set, on failure.
[[nodiscard]] inline descriptor try_listen(int family, const sockaddr* at, socklen_t size) {
    descriptor made{::socket(family, SOCK_STREAM, 0)};
    if (!made) { return {}; }
    prepare_socket(made.get());
    const int on = 1;
    const int off = 0;
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) { ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); }
    if (::bind(made.get(), at, size) != 0 || ::listen(made.get(), SOMAXCONN) != 0) {
        const int reason = errno;
        made = descriptor{};
        errno = reason;
    }
    return made;
}

PULSE_INLINE bool is_loopback(std::string_view host) noexcept {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

PULSE_INLINE descriptor listen_on(const std::string& host, std::uint16_t& port) {
    descriptor made{};
    int reason = EADDRNOTAVAIL;
    if (is_loopback(host)) {
        std::string why;
        const auto list = resolve({host, port}, why);
        for (const addrinfo* a = list.get(); a != nullptr && !made; a = a->ai_next) {
            made = try_listen(a->ai_family, a->ai_addr, a->ai_addrlen);
            if (!made) { reason = errno; }
        }
    } else {
        sockaddr_in6 six{};
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port);
        made = try_listen(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
        if (!made) { reason = errno; }
        if (!made && reason != EADDRINUSE) { // a machine without IPv6
            sockaddr_in four{};
            four.sin_family = AF_INET;
            four.sin_port = htons(port);
            made = try_listen(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four);
            if (!made) { reason = errno; }
        }
    }
    if (!made) {
        throw launch_error{"pulse: rank 0 cannot listen on port " + std::to_string(port) + " of this machine" +
                           (reason == EADDRINUSE ? ": it is taken by another program or run"
                                                 : std::string{": "} + std::strerror(reason))};
    }
    port = port_of(made.get());
    return made;
}

PULSE_INLINE descriptor connect_to(const endpoint& at, const deadline& until, std::string& why) {
    return connect_to_one(resolve(at, why).get(), until, why);
}

PULSE_INLINE descriptor connect_to_one(const addrinfo* list, const deadline& until, std::string& why) {
    int untried = 0;
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) { ++untried; }
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
        // An address that silently drops what it is sent must leave time for the others.
        const deadline part{until.left() / untried--};
        descriptor made{::socket(a->ai_family, SOCK_STREAM, 0)};
        if (!made) {
            why = std::strerror(errno);
            continue;
        }
        prepare_socket(made.get());
        int failed = ::connect(made.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        if (failed == EINPROGRESS) {
            if (!wait_ready(made.get(), POLLOUT, part)) {
                why = "no answer";
                continue;
            }
            socklen_t size = sizeof failed;
            ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &failed, &size);
        }
        if (failed == 0 && meets_itself(made.get())) { failed = ECONNREFUSED; }
        if (failed == 0) { return made; }
        why = std::strerror(failed);
    }
    return {};
}

} // namespace pulse::launch::detail
