#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <fcntl.h>
#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/file_store.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store.hpp>

namespace pulse::launch {

PULSE_INLINE file_store::file_store(const std::filesystem::path& parent, const std::string& run_id) :
    folder_{run_id.empty() ? parent : parent / file_name(run_id)} {
    std::error_code failed;
    std::filesystem::create_directories(folder_, failed);
    if (!std::filesystem::is_directory(folder_)) {
        throw input_error{"pulse: the folder " + folder_.string() + " cannot be made: " + failed.message()};
    }
}

PULSE_INLINE bool file_store::set(std::string_view key, std::string_view value) {
    static std::atomic<unsigned> serial{0};
    char host[256]{};
    ::gethostname(host, sizeof host - 1);
    const std::filesystem::path draft = folder_ / (".draft-" + file_name(host) + "-" + std::to_string(::getpid()) +
                                                   "-" + std::to_string(serial.fetch_add(1)));
    write(draft, value);
    const bool linked = ::link(draft.c_str(), path_of(key).c_str()) == 0;
    const int reason = errno;
    ::unlink(draft.c_str());
    if (!linked && reason != EEXIST) {
        throw launch_error{"pulse: " + path_of(key).string() + " cannot be made: " + std::strerror(reason)};
    }
    return linked;
}

PULSE_INLINE std::optional<found_value> file_store::get_first(std::span<const std::string> keys,
                                                              deadline::duration timeout) {
    const deadline until{timeout};
    deadline::duration pause{2};
    for (;;) {
        for (std::size_t i = 0; i != keys.size(); ++i) {
            std::ifstream file{path_of(keys[i]), std::ios::binary};
            if (file) {
                return found_value{i, {std::istreambuf_iterator<char>{file}, std::istreambuf_iterator<char>{}}};
            }
        }
        if (until.passed()) { return std::nullopt; }
        std::this_thread::sleep_for(std::min(pause, until.left()));
        pause = std::min(pause * 2, deadline::duration{100});
    }
}

PULSE_INLINE void file_store::erase() const noexcept {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

PULSE_INLINE std::string file_store::file_name(std::string_view text) {
    static constexpr std::string_view digits = "0123456789ABCDEF";
    std::string name;
    for (const char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                           c == '-' || (c == '.' && !name.empty());
        const auto byte = static_cast<unsigned char>(c);
        if (plain) {
            name.push_back(c);
        } else {
            name.append({'%', digits[byte / 16U], digits[byte % 16U]});
        }
    }
    return name;
}

PULSE_INLINE std::filesystem::path file_store::path_of(std::string_view key) const { return folder_ / file_name(key); }

PULSE_INLINE void file_store::write(const std::filesystem::path& path, std::string_view value) {
    const detail::descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    while (file && !value.empty()) {
        const ssize_t n = ::write(file.get(), value.data(), value.size());
        if (n > 0) {
            value.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            break;
        }
    }
    // Synced, so that no machine that shares the folder finds the name before the bytes.
    if (!file || !value.empty() || ::fsync(file.get()) != 0) {
        throw launch_error{"pulse: " + path.string() + " cannot be written: " + std::strerror(errno)};
    }
}

} // namespace pulse::launch
