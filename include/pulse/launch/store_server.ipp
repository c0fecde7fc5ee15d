#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pulse/core/separate.hpp>
#include <pulse/launch/deadline.hpp>
#include <pulse/launch/frames.hpp>
#include <pulse/launch/socket.hpp>
#include <pulse/launch/store_server.hpp>
#include <pulse/launch/wake_up.hpp>

namespace pulse::launch::detail {

PULSE_INLINE store_server::store_server(const std::string& host, std::uint16_t port, std::string run_id,
                                        std::uint64_t secret, int ranks, deadline::duration timeout) :
    port_{port},
    listener_{listen_on(host, port_)}, run_id_{std::move(run_id)}, secret_{secret},
    ranks_{static_cast<std::size_t>(ranks)}, all_tried_{timeout}, thread_{[this] { serve(); }} {}

PULSE_INLINE void store_server::close(deadline::duration linger) {
    if (!thread_.joinable()) { return; }
    linger_ms_ = linger.count();
    closing_ = true;
    wake_.signal();
    thread_.join();
}

PULSE_INLINE void store_server::serve() {
    std::optional<deadline> end;
    for (;;) {
        if (closing_ && !end) { end.emplace(deadline::duration{linger_ms_.load()}); }
        if (end && clients_.empty() && (came_.size() >= ranks_ || all_tried_.passed())) { return; }
        if (end && end->passed()) { return; }
        wait_for_events(end);
        accept_all();
        for (client& c : clients_) { attend(c); }
        clients_.remove_if([](const client& c) { return c.left; });
    }
}

PULSE_INLINE void store_server::wait_for_events(const std::optional<deadline>& end) {
    polled_.clear();
    polled_.push_back({wake_.number(), POLLIN, 0});
    int most = end ? std::min(end->poll_ms(), all_tried_.passed() ? 3'600'000 : all_tried_.poll_ms()) : 3'600'000;
    if (clients_.size() < most_clients) { polled_.push_back({listener_.get(), POLLIN, 0}); }
    for (const client& c : clients_) {
        polled_.push_back(
            {c.stream.number(), static_cast<short>(c.stream.has_output() ? POLLIN | POLLOUT : POLLIN), 0});
        if (!c.greeted) { most = std::min(most, c.greet_until.poll_ms()); }
        if (c.answer_until) { most = std::min(most, c.answer_until->poll_ms()); }
    }
    ::poll(polled_.data(), static_cast<nfds_t>(polled_.size()), most);
    wake_.clear();
}

PULSE_INLINE void store_server::accept_all() {
    while (clients_.size() < most_clients) {
        descriptor made{::accept(listener_.get(), nullptr, nullptr)};
        if (!made) { return; }
        prepare_socket(made.get());
        clients_.emplace_back().stream = frame_stream{std::move(made)};
    }
}

PULSE_INLINE void store_server::attend(client& c) {
    c.stream.receive_some();
    try {
        while (std::optional<std::string> frame = c.stream.next()) { answer(c, *frame); }
    } catch (const bad_frame&) { c.left = true; }
    if (c.left) {
        c.stream.send_some();
        if (c.greeted) { lose(c); }
        return;
    }
    if (!c.greeted && c.greet_until.passed()) { c.left = true; }
    if (c.answer_until) { answer_wait(c); }
    c.stream.send_some();
    if (c.stream.lost()) {
        c.left = true;
        if (c.greeted) { lose(c); }
    }
}

PULSE_INLINE void store_server::answer(client& c, const std::string& frame) {
    frame_reader said{frame};
    const auto word = static_cast<store_word>(said.number());
    if (!c.greeted) {
        if (word != store_word::hello) { throw bad_frame{"pulse: the first message is not a greeting"}; }
        const std::string run = said.text();
        const int rank = said.integer();
        const int ranks = said.integer();
        c.who = said.text();
        if (run != run_id_) {
            c.stream.put(
                begin(store_word::refused).text("it serves the run '" + run_id_ + "', not '" + run + "'").bytes());
            return;
        }
        c.greeted = true;
        came_.insert(rank);
        ranks_ = std::max(ranks_, static_cast<std::size_t>(std::max(ranks, 0))); // a rank may have been told of more
        c.stream.put(begin(store_word::welcome).number(secret_).bytes());
        return;
    }
    switch (word) {
    case store_word::set: {
        std::string key = said.text();
        const bool first = values_.emplace(std::move(key), said.text()).second;
        c.stream.put(begin(store_word::was_set).number(first ? 1 : 0).bytes());
        if (first) {
            for (client& other : clients_) {
                if (other.answer_until) { answer_wait(other); }
            }
        }
        return;
    }
    case store_word::get_first: {
        const auto timeout = static_cast<std::int64_t>(said.number());
        c.keys.clear();
        while (!said.empty()) { c.keys.push_back(said.text()); }
        c.answer_until.emplace(deadline::duration{timeout});
        answer_wait(c);
        return;
    }
    case store_word::goodbye:
        c.greeted = false; // so its connection may end
        c.left = true;
        return;
    default: throw bad_frame{"pulse: a message is not a request"};
    }
}

PULSE_INLINE void store_server::answer_wait(client& c) {
    frame_writer reply;
    for (std::size_t i = 0; i != c.keys.size() && reply.bytes().empty(); ++i) {
        const auto at = values_.find(c.keys[i]);
        if (at != values_.end()) {
            reply = begin(store_word::found);
            reply.number(i).text(at->second);
        }
    }
    if (reply.bytes().empty() && c.answer_until->passed()) { reply = begin(store_word::none); }
    if (reply.bytes().empty() && !lost_.empty()) { reply = begin(store_word::lost).text(lost_); }
    if (reply.bytes().empty()) { return; }
    c.answer_until.reset();
    c.stream.put(reply.bytes());
    c.stream.send_some();
}

PULSE_INLINE void store_server::lose(client& c) {
    c.greeted = false;
    if (!lost_.empty()) { return; }
    lost_ = c.who + " has left without a goodbye";
    for (client& other : clients_) {
        if (other.answer_until && !other.left) { answer_wait(other); }
    }
}

} // namespace pulse::launch::detail
