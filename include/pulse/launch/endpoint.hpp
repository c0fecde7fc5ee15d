#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <pulse/core/separate.hpp>

namespace pulse::launch {

/// A host, by name or number, and a TCP port.
struct endpoint {
    std::string host{};
    std::uint16_t port{};

    [[nodiscard]] bool operator==(const endpoint&) const = default;
};

/// "host:port", an IPv6 number in brackets.
[[nodiscard]] PULSE_INLINE std::string to_text(const endpoint& at);

/// Reads a port from 0 (the system chooses) to 65535. Throws input_error naming `what`.
[[nodiscard]] PULSE_INLINE std::uint16_t read_port(std::string_view text, const std::string& what);

/// Reads "host:port" or "[IPv6]:port". Throws input_error naming `what`.
[[nodiscard]] PULSE_INLINE endpoint read_endpoint(std::string_view text, const std::string& what);

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/endpoint.ipp> // IWYU pragma: keep
#endif
