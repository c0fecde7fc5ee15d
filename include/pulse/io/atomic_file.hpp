#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <pulse/core/error.hpp>

namespace pulse::io {

/// A file that appears whole or not at all: written under a temporary name in the same folder, synced, renamed.
///
/// Until commit() the old file stays in place; an atomic_file that is destroyed without commit() leaves no trace.
/// Every failure throws input_error with the final name and the system's reason.
class atomic_file {
public:
    explicit atomic_file(std::filesystem::path path) : path_{std::move(path)} {
        static std::atomic<unsigned> serial{0};
        if (path_.filename().empty()) { throw input_error("cannot write '" + path_.string() + "': not a file name"); }
        // A rename would put a file in the place of a pipe or device, such as /dev/null, or of a link to one.
        std::error_code fault{};
        if (std::filesystem::is_other(path_, fault)) {
            throw input_error("cannot write '" + path_.string() + "': it is not a file");
        }
        if (fault == std::errc::filename_too_long) { // the temporary name may still fit
            throw input_error("cannot create '" + path_.string() + "': " + fault.message());
        }
        for (int attempt = 0; attempt != 100 && descriptor_ < 0; ++attempt) {
            // Cut, since file systems limit names to 255 bytes.
            temporary_ = folder() / ("." + path_.filename().string().substr(0, 200) + "." + std::to_string(::getpid()) +
                                     "-" + std::to_string(serial.fetch_add(1)) + ".tmp");
            descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (descriptor_ < 0 && errno != EEXIST) { break; }
        }
        if (descriptor_ < 0) { fail("create"); }
    }

    atomic_file(const atomic_file&) = delete;
    atomic_file& operator=(const atomic_file&) = delete;

    ~atomic_file() { discard(); }

    void write(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ::ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
            if (written < 0) {
                if (errno == EINTR) { continue; }
                fail("write");
            }
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }
    void write(std::string_view text) { write(std::as_bytes(std::span{text.data(), text.size()})); }

    /// Syncs the file, renames it to its final name and syncs the folder; call once, last.
    void commit() {
        if (::fsync(descriptor_) != 0) { fail("sync"); }
        const int closed = ::close(std::exchange(descriptor_, -1));
        if (closed != 0) { fail("close"); }
        if (::rename(temporary_.c_str(), path_.c_str()) != 0) { fail("replace"); }
        temporary_.clear();
        // A power cut may otherwise lose the new name. Errors are ignored: some file systems cannot sync folders.
        const int folder_descriptor = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder_descriptor >= 0) {
            ::fsync(folder_descriptor);
            ::close(folder_descriptor);
        }
    }

private:
    [[nodiscard]] std::filesystem::path folder() const {
        return path_.has_parent_path() ? path_.parent_path() : std::filesystem::path{"."};
    }

    void discard() noexcept {
        if (descriptor_ >= 0) { ::close(std::exchange(descriptor_, -1)); }
        if (!temporary_.empty()) { ::unlink(temporary_.c_str()); }
    }

    [[noreturn]] void fail(const char* action) {
        const int reason = errno;
        discard();
        throw input_error("cannot " + std::string{action} + " '" + path_.string() + "': " + std::strerror(reason));
    }

    std::filesystem::path path_;
    std::filesystem::path temporary_{};
    int descriptor_ = -1;
};

/// The content of a whole file. Throws input_error when it is a folder or cannot be read.
[[nodiscard]] inline std::string read_file(const std::filesystem::path& path) {
    std::error_code unused{};
    if (std::filesystem::is_directory(path, unused)) { throw input_error(path.string() + ": is a folder"); }
    try {
        std::ifstream file(path, std::ios::binary);
        std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
        if (file) { return content; }
    } catch (const std::ios_base::failure&) {} // a disk that fails; its message does not name the file
    throw input_error(path.string() + ": cannot be read");
}

/// Writes a whole file at once, atomically.
inline void write_file(const std::filesystem::path& path, std::string_view content) {
    atomic_file file{path};
    file.write(content);
    file.commit();
}

} // namespace pulse::io
