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
    file_store(const std::filesystem::path& parent, const std::string& run_id);

    [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

    bool set(std::string_view key, std::string_view value);

    [[nodiscard]] std::optional<found_value> get_first(std::span<const std::string> keys, deadline::duration timeout);

    /// Removes the folder with all values. For one rank, when every rank is through with them.
    void erase() const noexcept;

private:
    /// Any text as a file's name: what is no letter, digit, '.', '_' or '-' as %XX.
    [[nodiscard]] static std::string file_name(std::string_view text);
    [[nodiscard]] std::filesystem::path path_of(std::string_view key) const;

    static void write(const std::filesystem::path& path, std::string_view value);

    std::filesystem::path folder_;
};

static_assert(store<file_store>, "file_store is a store");

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/file_store.ipp> // IWYU pragma: keep
#endif
