#pragma once

#include <algorithm>
#include <chrono>
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

#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store.hpp>
#include <pulse/launch/store_server.hpp>

namespace pulse::launch {

struct tcp_store_options {
    /// Where rank 0 listens and all ranks connect.
    endpoint where{};
    /// Ranks of another run that come to the same port are sent away.
    std::string run_id{};
    /// How long to try to reach rank 0.
    deadline::duration timeout{std::chrono::seconds{60}};
    /// How long rank 0 waits at the end for ranks that still read, or come too late to meet the others.
    deadline::duration linger{std::chrono::seconds{5}};
};

/// 64 bits that no other process draws.
[[nodiscard]] inline std::uint64_t random_bits() {
    std::random_device device;
    return (std::uint64_t{device()} << 32) ^ device() ^ (static_cast<std::uint64_t>(::getpid()) << 16);
}

/// A store that rank 0 serves by TCP; every rank, rank 0 too, is connected to it.
///
/// When a rank's process ends, or leaves by an exception, without the goodbye of this destructor, ranks that wait are
/// told at once. Any thread may use it, one at a time.
class tcp_store {
public:
    /// Throws launch_error when rank 0 cannot listen, when rank 0 is not reached within the timeout, or when what
    /// answers there is no rank 0 of this run.
    tcp_store(const rank_identity& who, const tcp_store_options& options) :
        unwinding_{std::uncaught_exceptions()}, linger_{options.linger}, where_{options.where} {
        std::uint64_t secret = 0;
        if (who.rank == 0) {
            secret = random_bits();
            server_ = std::make_unique<store_server>(where_.host, where_.port, options.run_id, secret, who.world_size,
                                                     options.timeout);
            where_.port = server_->port();
        }
        const std::uint64_t reached = connect(who, options);
        if (who.rank == 0 && reached != secret) {
            throw launch_error{"pulse: " + to_text(where_) + " leads to another rank 0 of this run"};
        }
    }
    tcp_store(const tcp_store&) = delete;
    tcp_store& operator=(const tcp_store&) = delete;
    ~tcp_store() {
        try {
            if (std::uncaught_exceptions() == unwinding_ && !stream_.lost()) {
                stream_.put(detail::begin(detail::store_word::goodbye).bytes());
                stream_.finish(deadline{deadline::duration{1000}});
            }
            stream_ = frame_stream{};
            if (server_) { server_->close(linger_); }
        } catch (...) { // an end without a goodbye
        }
    }

    /// Where the ranks connect; the port is the one in use.
    [[nodiscard]] const endpoint& where() const noexcept { return where_; }

    bool set(std::string_view key, std::string_view value) {
        frame_writer request = detail::begin(detail::store_word::set);
        request.text(key).text(value);
        const std::string reply = ask(request, deadline::duration{0});
        frame_reader said{reply};
        expect(said, detail::store_word::was_set);
        return said.number() == 1;
    }

    [[nodiscard]] std::optional<found_value> get_first(std::span<const std::string> keys, deadline::duration timeout) {
        frame_writer request = detail::begin(detail::store_word::get_first);
        request.number(static_cast<std::uint64_t>(timeout.count()));
        for (const std::string& key : keys) { request.text(key); }
        const std::string reply = ask(request, timeout);
        frame_reader said{reply};
        switch (static_cast<detail::store_word>(said.number())) {
        case detail::store_word::none: return std::nullopt;
        case detail::store_word::lost: throw launch_error{"pulse: " + said.text()};
        case detail::store_word::found: {
            const auto index = static_cast<std::size_t>(said.number());
            return found_value{index, said.text()};
        }
        default: throw launch_error{"pulse: rank 0's store gives no answer to a question"};
        }
    }

private:
    /// Longer than an answer needs on a busy machine.
    static constexpr deadline::duration answer_time{15000};

    /// Returns what the server says to be itself.
    std::uint64_t connect(const rank_identity& who, const tcp_store_options& options) {
        const deadline until{options.timeout};
        std::string why = "no answer";
        deadline::duration pause{10};
        for (;;) {
            stream_ = frame_stream{connect_to(where_, until, why)};
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
                        frame_reader said{*reply};
                        const auto word = static_cast<detail::store_word>(said.number());
                        if (word == detail::store_word::welcome) { return said.number(); }
                        why = word == detail::store_word::refused ? said.text() : "what answers there is no store";
                    } else {
                        why = stream_.reason().empty() ? "what answers there says nothing" : stream_.reason();
                    }
                } catch (const bad_frame&) { why = "what answers there is no store"; }
            }
            if (until.left() <= pause) {
                throw launch_error{"pulse: rank " + std::to_string(who.rank) + " does not reach rank 0 at " +
                                   to_text(where_) + " within " + seconds_text(options.timeout) + ": " + why};
            }
            std::this_thread::sleep_for(pause);
            pause = std::min(pause * 2, deadline::duration{500});
        }
    }

    std::string ask(const frame_writer& request, deadline::duration timeout) {
        const std::lock_guard lock{mutex_};
        const deadline until{timeout + answer_time};
        stream_.put(request.bytes());
        if (stream_.flush(until)) {
            if (std::optional<std::string> reply = stream_.wait_frame(until)) { return *std::move(reply); }
        }
        const bool gone = stream_.lost();
        stream_ = frame_stream{}; // an answer that comes too late is nobody's
        throw launch_error{gone ? "pulse: rank 0, which keeps the store, is gone"
                                : "pulse: rank 0, which keeps the store, does not answer"};
    }
    static void expect(frame_reader& said, detail::store_word word) {
        if (static_cast<detail::store_word>(said.number()) != word) {
            throw launch_error{"pulse: rank 0's store gives no answer to a question"};
        }
    }

    int unwinding_;
    deadline::duration linger_;
    endpoint where_;
    std::unique_ptr<store_server> server_{};
    frame_stream stream_{};
    std::mutex mutex_{};
};

static_assert(store<tcp_store>, "tcp_store is a store");

} // namespace pulse::launch
