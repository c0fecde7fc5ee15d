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
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store.hpp>

namespace pulse::launch {

/// A store in a folder that all ranks see: one file per key, which appears whole or not at all.
///
/// A value is written under a name of its own and then linked to the key's name; the link fails where the name is
/// taken, on every machine that shares the folder. Nobody notices here that a rank is lost: what is waited for does not
/// come.
class file_store {
public:
    /// Uses the folder `run_id` below `parent` (`parent` itself when it is empty) and makes it where it is absent. What
    /// another run has left in it is taken for this run's. Throws input_error when it cannot be made.
    file_store(const std::filesystem::path& parent, const std::string& run_id) :
        folder_{run_id.empty() ? parent : parent / file_name(run_id)} {
        std::error_code failed;
        std::filesystem::create_directories(folder_, failed);
        if (!std::filesystem::is_directory(folder_)) {
            throw input_error{"pulse: the folder " + folder_.string() + " cannot be made: " + failed.message()};
        }
    }

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

    bool set(std::string_view key, std::string_view value) {
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

    [[nodiscard]] std::optional<found_value> get_first(std::span<const std::string> keys, deadline::duration timeout) {
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

    /// Removes the folder with all values. For one rank, when every rank is through with them.
    void erase() const noexcept {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

private:
    /// Any text as a file's name: what is no letter, digit, '.', '_' or '-' as %XX.
    [[nodiscard]] static std::string file_name(std::string_view text) {
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
    [[nodiscard]] std::filesystem::path path_of(std::string_view key) const { return folder_ / file_name(key); }

    static void write(const std::filesystem::path& path, std::string_view value) {
        const descriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
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

    std::filesystem::path folder_;
};

static_assert(store<file_store>, "file_store is a store");

} // namespace pulse::launch
