#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pulse/core/error.hpp>

namespace pulse::io {

/// The bytes of a memory-mapped file, read from disk on access; processes that map the same file share them.
///
/// If a file shrinks while it is mapped, reading beyond its end kills the process. Throws input_error naming the path
/// and the system's reason.
class mapped_file {
public:
    explicit mapped_file(const std::filesystem::path& path) {
        // Without O_NONBLOCK, opening a pipe would wait for a writer.
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0) { fail("cannot open", path, errno); }
        struct ::stat status {};
        const bool is_file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
        if (is_file && status.st_size != 0) {
            const auto size = static_cast<std::size_t>(status.st_size);
            void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
            const int reason = errno;
            ::close(descriptor);
            if (at == MAP_FAILED) { fail("cannot map", path, reason); }
            bytes_ = {static_cast<const std::byte*>(at), size};
            return;
        }
        ::close(descriptor);
        if (!is_file) { throw input_error("cannot open '" + path.string() + "': it is not a file"); }
    }
    mapped_file(mapped_file&& other) noexcept : bytes_{std::exchange(other.bytes_, {})} {}
    mapped_file& operator=(mapped_file&& other) noexcept {
        mapped_file taken{std::move(other)};
        std::swap(bytes_, taken.bytes_);
        return *this;
    }
    ~mapped_file() {
        if (!bytes_.empty()) { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }
    }

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
    [[noreturn]] static void fail(const char* action, const std::filesystem::path& path, int reason) {
        throw input_error(std::string{action} + " '" + path.string() + "': " + std::strerror(reason));
    }

    std::span<const std::byte> bytes_{};
};

} // namespace pulse::io
