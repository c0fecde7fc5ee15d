#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <pulse/core/error.hpp>

namespace pulse::launch {

/// A host (name or IP address) and a TCP port.
struct endpoint {
    std::string host{};
    std::uint16_t port{};

    [[nodiscard]] bool operator==(const endpoint&) const = default;
};

/// "host:port", with an IPv6 address in brackets.
[[nodiscard]] inline std::string to_text(const endpoint& at) {
    const bool brackets = at.host.find(':') != std::string::npos;
    return (brackets ? "[" + at.host + "]" : at.host) + ":" + std::to_string(at.port);
}

/// Reads a port from 0 (the system chooses) to 65535. Throws input_error naming `what`.
[[nodiscard]] inline std::uint16_t read_port(std::string_view text, const std::string& what) {
    int port = -1;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (failed != std::errc{} || end != text.data() + text.size() || port < 0 || port > 65535) {
        throw input_error{"pulse: " + what + ": '" + std::string{text} + "' is not a port (0 to 65535)"};
    }
    return static_cast<std::uint16_t>(port);
}

/// Reads "host:port" or "[IPv6]:port". Throws input_error naming `what`.
[[nodiscard]] inline endpoint read_endpoint(std::string_view text, const std::string& what) {
    if (text.starts_with("file:")) {
        throw input_error{"pulse: " + what + ": '" + std::string{text} +
                          "' is a folder; it must be HOST:PORT of rank 0"};
    }
    const std::size_t colon = text.rfind(':');
    std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
        host = {};
    }
    if (host.empty()) {
        throw input_error{"pulse: " + what + ": '" + std::string{text} + "' is not host:port or [IPv6]:port"};
    }
    return {std::string{host}, read_port(text.substr(colon + 1), what)};
}

} // namespace pulse::launch
