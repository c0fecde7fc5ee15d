#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pulse/core/error.hpp>

namespace pulse::io {

/// An open file that is being written; the destructor closes it and ignores errors.
class output_file {
public:
    output_file(std::filesystem::path path, int descriptor) noexcept :
        path_{std::move(path)}, descriptor_{descriptor} {}
    output_file(output_file&& other) noexcept :
        path_{std::move(other.path_)}, descriptor_{std::exchange(other.descriptor_, -1)} {}
    output_file& operator=(output_file&&) = delete;
    ~output_file() {
        if (descriptor_ >= 0) { ::close(descriptor_); }
    }

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }

private:
    std::filesystem::path path_;
    int descriptor_;
};

/// The operations that make durable files, each one step of the file system.
///
/// A file's content survives a power cut after sync(), its name after sync_folder() of its folder. Every failure throws
/// input_error naming the path and the system's reason. Templates over this class let tests stop between any two steps.
class disk {
public:
    /// Makes one folder; false when the name is taken.
    [[nodiscard]] bool make_folder(const std::filesystem::path& path) const {
        if (::mkdir(path.c_str(), 0777) == 0) { return true; }
        if (errno != EEXIST) { fail("create", path); }
        return false;
    }
    /// A new file; an error when the name is taken.
    [[nodiscard]] output_file create(const std::filesystem::path& path) const {
        const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0) { fail("create", path); }
        return {path, descriptor};
    }
    void write(const output_file& file, std::span<const std::byte> bytes) const {
        while (!bytes.empty()) {
            const ::ssize_t written = ::write(file.descriptor(), bytes.data(), bytes.size());
            if (written < 0) {
                if (errno == EINTR) { continue; }
                fail("write", file.path());
            }
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }
    void write(const output_file& file, std::string_view text) const {
        write(file, std::as_bytes(std::span{text.data(), text.size()}));
    }
    void sync(const output_file& file) const {
        if (::fsync(file.descriptor()) != 0) { fail("sync", file.path()); }
    }
    void close(output_file& file) const {
        if (::close(file.release()) != 0) { fail("close", file.path()); }
    }
    /// Renames a file; replaces any file with the new name.
    void rename(const std::filesystem::path& from, const std::filesystem::path& to) const {
        if (::rename(from.c_str(), to.c_str()) != 0) { fail("replace", to); }
    }
    /// Exchanges two paths atomically. Linux only; not every network file system supports it.
    void exchange(const std::filesystem::path& a, const std::filesystem::path& b) const {
        if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) { fail("replace", b); }
    }
    /// EINVAL and ENOTSUP are no errors: some file systems cannot sync folders.
    void sync_folder(const std::filesystem::path& path) const {
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (descriptor < 0) { fail("sync", path); }
        const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
        const int reason = errno;
        ::close(descriptor);
        errno = reason;
        if (!synced) { fail("sync", path); }
    }
    void remove_file(const std::filesystem::path& path) const {
        if (::unlink(path.c_str()) != 0) { fail("remove", path); }
    }
    /// Removes an empty folder.
    void remove_folder(const std::filesystem::path& path) const {
        if (::rmdir(path.c_str()) != 0) { fail("remove", path); }
    }

private:
    [[noreturn]] static void fail(const char* action, const std::filesystem::path& path) {
        const int reason = errno;
        throw input_error("cannot " + std::string{action} + " '" + path.string() + "': " + std::strerror(reason));
    }
};

} // namespace pulse::io
