#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <unistd.h>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store_server.hpp>

namespace pulse::launch {

/// The index of a requested key, and its value.
struct found_value {
    std::size_t index{};
    std::string value{};
};

struct tcp_store_options {
    /// Where rank 0 listens and all ranks connect.
    endpoint where{};
    /// Ranks of another run that reach the same port are rejected.
    std::string run_id{};
    /// How long a rank tries to reach rank 0.
    deadline::duration timeout{std::chrono::seconds{60}};
    /// How long rank 0 waits at the end for ranks that still read or come too late to meet the others.
    deadline::duration linger{std::chrono::seconds{5}};
};

namespace detail {

/// 64 random bits; no two processes should draw the same ones.
[[nodiscard]] inline std::uint64_t random_bits() {
    std::random_device device;
    return (std::uint64_t{device()} << 32) ^ device() ^ (static_cast<std::uint64_t>(::getpid()) << 16);
}

} // namespace detail

/// A store of small values that ranks share before they have other connections: rank 0 serves it over TCP, and every
/// rank, rank 0 included, connects to it. Keys are not empty; values are any bytes, up to 16 MiB.
///
/// When a rank's process ends without the destructor's goodbye, or an exception leaves the scope, waiting ranks get an
/// error at once. Thread-safe: calls run one at a time. Throws launch_error when rank 0 or another participating rank
/// is lost.
class tcp_store {
public:
    /// Throws launch_error when rank 0 cannot listen or is not reached within the timeout, or when the program that
    /// answers is not rank 0 of this run.
    tcp_store(const rank_identity& who, const tcp_store_options& options);
    tcp_store(const tcp_store&) = delete;
    tcp_store& operator=(const tcp_store&) = delete;
    ~tcp_store() {
        try {
            if (std::uncaught_exceptions() == unwinding_ && !stream_.lost()) {
                stream_.put(detail::begin(detail::store_word::goodbye).bytes());
                stream_.finish(deadline{deadline::duration{1000}});
            }
            stream_ = detail::frame_stream{};
            if (server_) { server_->close(linger_); }
        } catch (...) { // an end without a goodbye
        }
    }

    /// Where the ranks connect, with the actual port.
    [[nodiscard]] const endpoint& where() const noexcept { return where_; }

    /// Sets the value of a new key and returns true; an existing value stays, and false is returned.
    bool set(std::string_view key, std::string_view value);

    /// The first of the keys that has a value, once one has; none after the timeout. A timeout of 0 does not wait.
    [[nodiscard]] std::optional<found_value> get_first(std::span<const std::string> keys, deadline::duration timeout);

    /// The value of one key, once it has one; none after the timeout.
    [[nodiscard]] std::optional<std::string> get(const std::string& key, deadline::duration timeout) {
        std::optional<found_value> found = get_first(std::span{&key, 1}, timeout);
        return found ? std::optional{std::move(found->value)} : std::nullopt;
    }

private:
    /// Longer than an answer takes on a busy machine.
    static constexpr deadline::duration answer_time{15000};

    /// Returns the secret that the server presents.
    std::uint64_t connect(const rank_identity& who, const tcp_store_options& options) {
        const deadline until{options.timeout};
        std::string why = "no answer";
        deadline::duration pause{10};
        for (;;) {
            stream_ = detail::frame_stream{detail::connect_to(where_, until, why)};
            if (stream_.number() >= 0) {
                stream_.put(
                    detail::begin(detail::store_word::hello)
                        .text(options.run_id)
                        .number(static_cast<std::uint64_t>(who.rank))
                        .number(static_cast<std::uint64_t>(who.world_size))
                        .text("rank " + std::to_string(who.rank) + " (process " + std::to_string(::getpid()) + ")")
                        .bytes());
                stream_.flush(until);
                try {
                    if (const std::optional<std::string> reply = stream_.wait_frame(until)) {
                        detail::frame_reader said{*reply};
                        const auto word = static_cast<detail::store_word>(said.number());
                        if (word == detail::store_word::welcome) { return said.number(); }
                        why = word == detail::store_word::refused ? said.text()
                                                                  : "the program at that address is not a pulse store";
                    } else {
                        why = stream_.reason().empty() ? "connected, but got no reply" : stream_.reason();
                    }
                } catch (const detail::bad_frame&) { why = "the program at that address is not a pulse store"; }
            }
            if (until.left() <= pause) {
                throw launch_error{"pulse: rank " + std::to_string(who.rank) + " could not reach rank 0 at " +
                                   to_text(where_) + " within " + seconds_text(options.timeout) + ": " + why};
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, deadline::duration{500});
        }
    }

    std::string ask(const detail::frame_writer& request, deadline::duration timeout);
    static void expect(detail::frame_reader& said, detail::store_word word);

    int unwinding_;
    deadline::duration linger_;
    endpoint where_;
    std::unique_ptr<detail::store_server> server_{};
    detail::frame_stream stream_{};
    std::mutex mutex_{};
};

} // namespace pulse::launch

#ifndef PULSE_SEPARATE_COMPILATION
#include <pulse/launch/tcp_store.ipp> // IWYU pragma: keep
#endif
