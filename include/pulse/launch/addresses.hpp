#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pulse::launch {

/// Addresses at which other machines may reach this one: the numeric ones, without loopback and IPv6 addresses with a
/// scope, then the host name.
[[nodiscard]] inline std::vector<std::string> own_addresses() {
    std::vector<std::string> found;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) == 0) {
        const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{list, &::freeifaddrs};
        for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
            if (i->ifa_addr == nullptr) { continue; }
            const int family = i->ifa_addr->sa_family;
            if (family != AF_INET && family != AF_INET6) { continue; }
            std::array<char, NI_MAXHOST> text{};
            const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            if (::getnameinfo(i->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
                continue;
            }
            const std::string number{text.data()};
            if (number.starts_with("127.") || number == "::1" || number.find('%') != std::string::npos) { continue; }
            found.push_back(number);
        }
    }
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    found.emplace_back(name.data());
    return found;
}

} // namespace pulse::launch
