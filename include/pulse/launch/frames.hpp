#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::launch::detail {

/// The bytes received are not a valid message between pulse's ranks.
struct bad_frame : launch_error {
    using launch_error::launch_error;
};

/// Serialises 64-bit numbers (little-endian) and texts with their length in front.
class frame_writer {
public:
    frame_writer& number(std::uint64_t value) {
        for (int i = 0; i != 8; ++i) {
            bytes_.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
        }
        return *this;
    }
    frame_writer& text(std::string_view value) {
        number(value.size());
        bytes_.append(value);
        return *this;
    }
    [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

private:
    std::string bytes_;
};

/// Reads them back in the same order. Throws bad_frame when the bytes run out.
class frame_reader {
public:
    explicit frame_reader(std::string_view bytes) noexcept : left_{bytes} {}

    [[nodiscard]] std::uint64_t number() {
        const std::string_view eight = take(8);
        std::uint64_t value = 0;
        for (std::size_t i = 0; i != 8; ++i) {
            value |= std::uint64_t{static_cast<unsigned char>(eight[i])} << (8 * i);
        }
        return value;
    }
    [[nodiscard]] int integer() { return static_cast<int>(static_cast<std::int64_t>(number())); }
    [[nodiscard]] std::string text() {
        const std::uint64_t size = number();
        if (size > left_.size()) { throw bad_frame{"pulse: a message is truncated"}; }
        return std::string{take(static_cast<std::size_t>(size))};
    }
    [[nodiscard]] bool empty() const noexcept { return left_.empty(); }

private:
    [[nodiscard]] std::string_view take(std::size_t bytes) {
        if (bytes > left_.size()) { throw bad_frame{"pulse: a message is truncated"}; }
        const std::string_view taken = left_.substr(0, bytes);
        left_.remove_prefix(bytes);
        return taken;
    }

    std::string_view left_;
};

/// Exchanges frames over a connection: eight magic bytes, four bytes of payload length, the payload.
///
/// Only wait_frame, flush and finish block, up to their deadlines. A connection that breaks, or delivers bytes that are
/// not a frame, is lost() from then on.
class frame_stream {
public:
    static constexpr std::size_t most_bytes = std::size_t{20} << 20;

    frame_stream() = default;
    explicit frame_stream(descriptor connected) noexcept : socket_{std::move(connected)} {}

    [[nodiscard]] int number() const noexcept { return socket_.get(); }
    [[nodiscard]] bool lost() const noexcept { return lost_; }
    /// Why it was lost; empty when the other side closed it.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    [[nodiscard]] bool has_output() const noexcept { return sent_ != out_.size(); }

    /// Queues a frame for sending.
    void put(std::string_view payload) {
        out_.append(magic);
        for (int i = 0; i != 4; ++i) {
            out_.push_back(static_cast<char>(static_cast<unsigned char>(payload.size() >> (8 * i))));
        }
        out_.append(payload);
    }
    /// Sends as much as the connection takes without blocking.
    void send_some();
    /// Receives what has arrived.
    void receive_some();
    /// The next complete frame, even after the connection was lost. Invalid bytes lose the connection.
    [[nodiscard]] std::optional<std::string> next();
    /// The next frame; none when the deadline passes or the connection is lost.
    [[nodiscard]] std::optional<std::string> wait_frame(const deadline& until);
    /// Sends everything queued; false when the deadline passes or the connection is lost.
    bool flush(const deadline& until);
    /// Sends everything queued, ends sending, and waits until the other side closes too: closing at once would drop
    /// data that it has not read.
    void finish(const deadline& until);

private:
    static constexpr std::string_view magic{"pulse\x01\r\n", 8};
    static constexpr std::size_t header_bytes = 12;

    void lose(std::string reason);
    std::optional<std::string> not_a_frame();

    descriptor socket_{};
    std::string in_{};
    std::string out_{};
    std::size_t sent_{};
    bool lost_{};
    bool bad_{};
    std::string reason_{};
};

} // namespace pulse::launch::detail

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/frames.ipp> // IWYU pragma: keep
#endif
