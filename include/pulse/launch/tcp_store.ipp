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

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/endpoint.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/identity.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store_server.hpp>
#include <pulse/launch/tcp_store.hpp>

namespace pulse::launch {

PULSE_INLINE tcp_store::tcp_store(const rank_identity& who, const tcp_store_options& options) :
    unwinding_{std::uncaught_exceptions()}, linger_{options.linger}, where_{options.where} {
    std::uint64_t secret = 0;
    if (who.rank == 0) {
        secret = detail::random_bits();
        server_ = std::make_unique<detail::store_server>(where_.host, where_.port, options.run_id, secret,
                                                         who.world_size, options.timeout);
        where_.port = server_->port();
    }
    const std::uint64_t reached = connect(who, options);
    if (who.rank == 0 && reached != secret) {
        throw launch_error{"pulse: " + to_text(where_) + " leads to another process that is rank 0 of this run"};
    }
}

PULSE_INLINE bool tcp_store::set(std::string_view key, std::string_view value) {
    detail::frame_writer request = detail::begin(detail::store_word::set);
    request.text(key).text(value);
    const std::string reply = ask(request, deadline::duration{0});
    detail::frame_reader said{reply};
    expect(said, detail::store_word::was_set);
    return said.number() == 1;
}

PULSE_INLINE std::optional<found_value> tcp_store::get_first(std::span<const std::string> keys,
                                                             deadline::duration timeout) {
    detail::frame_writer request = detail::begin(detail::store_word::get_first);
    request.number(static_cast<std::uint64_t>(timeout.count()));
    for (const std::string& key : keys) { request.text(key); }
    const std::string reply = ask(request, timeout);
    detail::frame_reader said{reply};
    switch (static_cast<detail::store_word>(said.number())) {
    case detail::store_word::none: return std::nullopt;
    case detail::store_word::lost: throw launch_error{"pulse: " + said.text()};
    case detail::store_word::found: {
        const auto index = static_cast<std::size_t>(said.number());
        return found_value{index, said.text()};
    }
    default: throw launch_error{"pulse: rank 0's store sent an invalid reply"};
    }
}

PULSE_INLINE std::string tcp_store::ask(const detail::frame_writer& request, deadline::duration timeout) {
    const std::lock_guard lock{mutex_};
    const deadline until{std::min(timeout, deadline::longest) + answer_time};
    stream_.put(request.bytes());
    if (stream_.flush(until)) {
        if (std::optional<std::string> reply = stream_.wait_frame(until)) { return *std::move(reply); }
    }
    const bool gone = stream_.lost();
    stream_ = detail::frame_stream{}; // a late answer must not reach the next request
    throw launch_error{gone ? "pulse: rank 0, which keeps the store, is gone"
                            : "pulse: rank 0, which keeps the store, does not answer"};
}

PULSE_INLINE void tcp_store::expect(detail::frame_reader& said, detail::store_word word) {
    if (static_cast<detail::store_word>(said.number()) != word) {
        throw launch_error{"pulse: rank 0's store sent an invalid reply"};
    }
}

} // namespace pulse::launch
