#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <zlib.h>

#include <pulse/core/error.hpp>

namespace pulse_train {

/// Bytes of a file, decompressed on the fly if it starts like a gzip file.
///
/// Damage (a broken or truncated stream, a wrong checksum, bytes after its end) throws input_error naming the file.
class gzip_reader {
public:
    explicit gzip_reader(const std::filesystem::path& path) :
        name_{path.string()}, file_{std::fopen(path.c_str(), "rb")}, input_(std::size_t{1} << 16U) {
        if (!file_) { throw pulse::input_error("cannot open '" + name_ + "': " + std::strerror(errno)); }
        refill();
        compressed_ = stream_.avail_in >= 2 && input_[0] == 0x1FU && input_[1] == 0x8BU;
        constexpr int gzip_only = 16;
        if (compressed_ && inflateInit2(&stream_, MAX_WBITS + gzip_only) != Z_OK) {
            throw pulse::input_error("cannot decompress '" + name_ + "': zlib did not start");
        }
    }

    gzip_reader(const gzip_reader&) = delete;
    gzip_reader& operator=(const gzip_reader&) = delete;

    ~gzip_reader() {
        if (compressed_) { inflateEnd(&stream_); }
    }

    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    /// Fills `out` from the front and returns the number of bytes read; fewer than requested only at the end.
    [[nodiscard]] std::size_t read(std::span<std::uint8_t> out) {
        std::size_t done = 0;
        while (done != out.size()) {
            const std::size_t got = compressed_ ? inflate_some(out.subspan(done)) : copy_some(out.subspan(done));
            if (got == 0) { break; }
            done += got;
        }
        return done;
    }

private:
    struct close_file {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };

    void refill() {
        if (stream_.avail_in != 0) { return; }
        const std::size_t got = std::fread(input_.data(), 1, input_.size(), file_.get());
        if (got == 0 && std::ferror(file_.get()) != 0) {
            throw pulse::input_error("cannot read '" + name_ + "': " + std::strerror(errno));
        }
        stream_.next_in = input_.data();
        stream_.avail_in = static_cast<uInt>(got);
    }

    [[nodiscard]] std::size_t copy_some(std::span<std::uint8_t> out) {
        refill();
        const std::size_t count = out.size() < stream_.avail_in ? out.size() : stream_.avail_in;
        if (count != 0) { std::memcpy(out.data(), stream_.next_in, count); }
        stream_.next_in += count;
        stream_.avail_in -= static_cast<uInt>(count);
        return count;
    }

    [[nodiscard]] std::size_t inflate_some(std::span<std::uint8_t> out) {
        constexpr std::size_t most = std::size_t{1} << 30U;
        const std::size_t wanted = out.size() < most ? out.size() : most;
        stream_.next_out = out.data();
        stream_.avail_out = static_cast<uInt>(wanted);
        while (stream_.avail_out == wanted) {
            refill();
            if (ended_) {
                if (stream_.avail_in == 0) { return 0; }
                // A gzip file may hold several streams in sequence; anything else is damage.
                if (inflateReset(&stream_) != Z_OK) { damaged("zlib did not restart"); }
                ended_ = false;
            }
            if (stream_.avail_in == 0) { damaged("the compressed data ends too early"); }
            const int status = inflate(&stream_, Z_NO_FLUSH);
            if (status == Z_STREAM_END) {
                ended_ = true;
            } else if (status != Z_OK) {
                damaged(stream_.msg != nullptr ? stream_.msg : "bad compressed data");
            }
        }
        return wanted - stream_.avail_out;
    }

    [[noreturn]] void damaged(const char* reason) const {
        throw pulse::input_error("'" + name_ + "' is damaged: " + reason);
    }

    std::string name_;
    std::unique_ptr<std::FILE, close_file> file_;
    std::vector<std::uint8_t> input_;
    z_stream stream_{};
    bool compressed_ = false;
    bool ended_ = false;
};

} // namespace pulse_train
