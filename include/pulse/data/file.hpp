#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pulse/core/error.hpp>
#include <pulse/data/text.hpp>

namespace pulse::data {

/// A file for reads at any offset, by one thread or several. Failures throw input_error with name and reason.
class input_file {
public:
    explicit input_file(const std::filesystem::path& path) : input_file{path, '\'' + one_line(path.string()) + '\''} {}
    /// A file that messages call `name`, such as one of its members.
    input_file(const std::filesystem::path& path, std::string name) :
        name_{std::move(name)},
        // Without O_NONBLOCK, opening a pipe of that name would wait for a writer.
        descriptor_{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)} {
        if (descriptor_ < 0) { throw input_error(name_ + " cannot be opened: " + std::strerror(errno)); }
        struct ::stat status {};
        if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
            ::close(descriptor_);
            throw input_error(name_ + " is not a file");
        }
        size_ = static_cast<std::uint64_t>(status.st_size);
    }
    input_file(const input_file&) = delete;
    input_file& operator=(const input_file&) = delete;
    ~input_file() { ::close(descriptor_); }

    /// The name in messages: the path in quotes, unless another was given.
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

    /// Fills `out` with the bytes from `offset` on.
    void read(std::uint64_t offset, std::span<std::byte> out) const {
        while (!out.empty()) {
            const ::ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<::off_t>(offset));
            if (got < 0 && errno == EINTR) { continue; }
            if (got < 0) { throw input_error(name_ + " cannot be read: " + std::strerror(errno)); }
            if (got == 0) { throw input_error(name_ + " became shorter while it was read"); }
            out = out.subspan(static_cast<std::size_t>(got));
            offset += static_cast<std::uint64_t>(got);
        }
    }

    /// The `bytes` bytes from `offset` on. Throws input_error above `most`, before memory is allocated.
    [[nodiscard]] std::string text(std::uint64_t offset, std::uint64_t bytes, std::uint64_t most) const {
        if (bytes > most) {
            throw input_error(name_ + ": " + std::to_string(bytes) + " bytes, but at most " + std::to_string(most) +
                              " are read");
        }
        std::string result(static_cast<std::size_t>(bytes), '\0');
        read(offset, std::as_writable_bytes(std::span{result}));
        return result;
    }

private:
    std::string name_;
    int descriptor_;
    std::uint64_t size_{};
};

} // namespace pulse::data
