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
#include <pulse/launch/frames.hpp>
#include <pulse/launch/socket.hpp>

namespace pulse::launch::detail {

PULSE_INLINE void frame_stream::send_some() {
    while (!lost_ && sent_ != out_.size()) {
        const ssize_t n = ::send(number(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (n >= 0) {
            sent_ += static_cast<std::size_t>(n);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            lose(std::strerror(errno));
        }
    }
    if (sent_ == out_.size()) {
        out_.clear();
        sent_ = 0;
    }
}

PULSE_INLINE void frame_stream::receive_some() {
    char room[16384];
    while (!lost_ && in_.size() <= most_bytes + header_bytes) {
        const ssize_t n = ::recv(number(), room, sizeof room, 0);
        if (n > 0) {
            in_.append(room, static_cast<std::size_t>(n));
        } else if (n == 0) {
            lose("");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            lose(std::strerror(errno));
        }
    }
}

PULSE_INLINE std::optional<std::string> frame_stream::next() {
    if (bad_) { return std::nullopt; }
    const std::size_t known = std::min(in_.size(), magic.size());
    if (std::string_view{in_}.substr(0, known) != magic.substr(0, known)) { return not_a_frame(); }
    if (in_.size() < header_bytes) { return std::nullopt; }
    std::size_t size = 0;
    for (std::size_t i = 0; i != 4; ++i) {
        size |= std::size_t{static_cast<unsigned char>(in_[magic.size() + i])} << (8 * i);
    }
    if (size > most_bytes) { return not_a_frame(); }
    if (in_.size() < header_bytes + size) { return std::nullopt; }
    std::string payload = in_.substr(header_bytes, size);
    in_.erase(0, header_bytes + size);
    return payload;
}

PULSE_INLINE std::optional<std::string> frame_stream::wait_frame(const deadline& until) {
    for (;;) {
        if (std::optional<std::string> frame = next()) { return frame; }
        if (lost_ || !wait_ready(number(), POLLIN, until)) { return std::nullopt; }
        receive_some();
    }
}

PULSE_INLINE bool frame_stream::flush(const deadline& until) {
    send_some();
    while (!lost_ && has_output()) {
        if (!wait_ready(number(), POLLOUT, until)) { return false; }
        send_some();
    }
    return !lost_;
}

PULSE_INLINE void frame_stream::finish(const deadline& until) {
    flush(until);
    ::shutdown(number(), SHUT_WR);
    while (!lost_ && wait_ready(number(), POLLIN, until)) {
        receive_some();
        in_.clear();
    }
}

PULSE_INLINE void frame_stream::lose(std::string reason) {
    lost_ = true;
    reason_ = std::move(reason);
}

PULSE_INLINE std::optional<std::string> frame_stream::not_a_frame() {
    bad_ = true;
    lose("the peer is not a pulse rank");
    return std::nullopt;
}

} // namespace pulse::launch::detail
